/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-queue: products per second into and out of a store of 64 MB that discards the oldest.
 *
 *   bench-queue pq|file|lmdb directory=DIR
 *
 * pq: the product queue. file: one plain file; pwrite appends each product and starts over at the
 * end of the file; pread reads them back. lmdb: one transaction per product (MDB_NOSYNC,
 * MDB_WRITEMAP: as little protection against a power failure as the queue has), which also deletes
 * the oldest; one read transaction per read. Products have 1,000 or 100,000 bytes; reads are in
 * insertion order and touch every cache line. Prints NAME_SIZE_per_s=VALUE words.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_LMDB
#include <lmdb.h>
#endif

#include "options.h"
#include "queue/pq.h"

#define STORE_BYTES (64u << 20)
#define SLOTS 35000u
#define INSERT_BYTES 400000000u /* how much goes through the store */
#define INSERTS_MAX 200000u

struct store {
    const char *name;
    void (*open)(uint32_t size);
    void (*insert)(uint64_t number, const uint8_t *data, uint32_t size); /* number counts from 1 */
    unsigned (*read_all)(uint64_t last, uint32_t size); /* returns how many it read */
    void (*close)(void);
};

static const char *directory = "/dev/shm";
static char path[4096];
static volatile uint64_t sum; /* sum of what was read, so that the compiler keeps the reads */

static void touch(const uint8_t *data, uint32_t size)
{
    for (uint32_t i = 0; i < size; i += 64)
        sum += data[i];
}

static struct pq *queue;

static void open_pq(uint32_t size)
{
    (void)size;
    enum pq_status st = pq_create(path, STORE_BYTES, SLOTS, true);

    if (!st)
        st = pq_open(path, true, &queue);
    if (st)
        die("'%s': %s", path, pq_strerror(st));
}

static void insert_pq(uint64_t number, const uint8_t *data, uint32_t size)
{
    struct pq_info info = {.size = size};

    memcpy(info.signature.bytes, &number, sizeof number);
    enum pq_status st = pq_insert(queue, &info, data);
    if (st)
        die("'%s': %s", path, pq_strerror(st));
}

static unsigned read_pq(uint64_t last, uint32_t size)
{
    unsigned n = 0;

    (void)last;
    struct pq_view v;
    for (uint64_t after = 0; pq_next(queue, after, &v) == PQ_OK; n++) {
        touch(v.data, size);
        after = v.seq;
        pq_release(queue, &v);
    }
    return n;
}

static void close_pq(void)
{
    pq_close(queue);
    unlink(path);
}

static int plain = -1;

static void open_file(uint32_t size)
{
    (void)size;
    plain = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (plain < 0 || posix_fallocate(plain, 0, STORE_BYTES))
        die("'%s': %s", path, strerror(errno));
}

static void insert_file(uint64_t number, const uint8_t *data, uint32_t size)
{
    uint64_t places = STORE_BYTES / size;

    if (pwrite(plain, data, size, (off_t)((number - 1) % places * size)) != (ssize_t)size)
        die("'%s': %s", path, strerror(errno));
}

static unsigned read_file(uint64_t last, uint32_t size)
{
    static uint8_t buffer[1 << 17];
    uint64_t places = STORE_BYTES / size, first = last > places ? last - places + 1 : 1;

    for (uint64_t n = first; n <= last; n++) {
        if (pread(plain, buffer, size, (off_t)((n - 1) % places * size)) != (ssize_t)size)
            die("'%s': %s", path, strerror(errno));
        touch(buffer, size);
    }
    return (unsigned)(last - first + 1);
}

static void close_file(void)
{
    close(plain);
    unlink(path);
}

#ifdef HAVE_LMDB
static MDB_env *env;
static MDB_dbi database;
static uint64_t kept_max;

static void must(int error)
{
    if (error)
        die("'%s': %s", path, mdb_strerror(error));
}

static void open_lmdb(uint32_t size)
{
    /* A value larger than a page takes whole pages. */
    kept_max = STORE_BYTES / (size > 2000 ? (size + 16 + 4095) / 4096 * 4096 : size + 32);
    must(mdb_env_create(&env));
    must(mdb_env_set_mapsize(env, 3ul * STORE_BYTES));
    must(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOSYNC | MDB_WRITEMAP, 0600));
    MDB_txn *txn;
    must(mdb_txn_begin(env, NULL, 0, &txn));
    must(mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &database));
    must(mdb_txn_commit(txn));
}

static void insert_lmdb(uint64_t number, const uint8_t *data, uint32_t size)
{
    size_t n = number, oldest = number > kept_max ? number - kept_max : 0;
    MDB_val key = {sizeof n, &n}, value = {size, (void *)(uintptr_t)data};

    MDB_txn *txn;
    must(mdb_txn_begin(env, NULL, 0, &txn));
    if (oldest)
        must(mdb_del(txn, database, &(MDB_val){sizeof oldest, &oldest}, NULL));
    must(mdb_put(txn, database, &key, &value, MDB_APPEND));
    must(mdb_txn_commit(txn));
}

static unsigned read_lmdb(uint64_t last, uint32_t size)
{
    uint64_t first = last > kept_max ? last - kept_max + 1 : 1;

    MDB_txn *txn;
    must(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    for (uint64_t number = first; number <= last; number++) {
        size_t n = number;
        mdb_txn_reset(txn);
        must(mdb_txn_renew(txn));
        MDB_val value;
        must(mdb_get(txn, database, &(MDB_val){sizeof n, &n}, &value));
        touch(value.mv_data, size);
    }
    mdb_txn_abort(txn);
    return (unsigned)(last - first + 1);
}

static void close_lmdb(void)
{
    mdb_env_close(env);
    char lock[4200];
    snprintf(lock, sizeof lock, "%s-lock", path);
    unlink(path);
    unlink(lock);
}
#endif

static const struct store stores[] = {
    {"pq", open_pq, insert_pq, read_pq, close_pq},
    {"file", open_file, insert_file, read_file, close_file},
#ifdef HAVE_LMDB
    {"lmdb", open_lmdb, insert_lmdb, read_lmdb, close_lmdb},
#endif
};

static void measure(const struct store *s, uint32_t size)
{
    uint64_t inserts = INSERT_BYTES / size < INSERTS_MAX ? INSERT_BYTES / size : INSERTS_MAX,
             reads = 0;
    uint8_t *data = malloc(size);

    if (!data)
        die("out of memory");
    memset(data, 'x', size);
    s->open(size);
    double began = now_s();
    for (uint64_t n = 1; n <= inserts; n++)
        s->insert(n, data, size);
    double inserted = now_s();
    for (int round = 0; round < 3; round++)
        reads += s->read_all(inserts, size);
    double read = now_s();
    s->close();
    free(data);
    printf("inserts_%u_per_s=%.1f reads_%u_per_s=%.1f\n", size,
           (double)inserts / (inserted - began), size, (double)reads / (read - inserted));
}

int main(int argc, char **argv)
{
    const struct option_word words[] = {{"directory", .text = &directory}, {0}};
    const struct store *found = NULL;

    program = "bench-queue";
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++)
        if (argc > 1 && strcmp(argv[1], stores[i].name) == 0)
            found = &stores[i];
    if (!found)
        die_usage("found '%s'; valid: pq, file%s", argc < 2 ? "" : argv[1],
                  sizeof stores / sizeof *stores > 2 ? ", lmdb" : " (built without LMDB)");
    read_options(argc, argv, 2, words);
    snprintf(path, sizeof path, "%s/bench-queue-%ld", directory, (long)getpid());
    measure(found, 1000);
    measure(found, 100000);
    return 0;
}
