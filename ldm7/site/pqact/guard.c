/* SPDX-License-Identifier: Apache-2.0
 *
 * An interpreter takes its program from the word after an option such as -c or -e, from the first
 * word that is not an option, or from the option itself (-c..., --eval=...). Therefore text of the
 * identifier is refused until a constant program was seen, within an option, and right after one.
 * For programs that run others (env, nice, busybox), the command that they run is examined. If it
 * is unclear whether an option has an operand, the command is refused.
 */
#include "guard.h"

#include <ctype.h>
#include <string.h>

#define CHOOSES "the identifier would choose the program"
#define READ_BY "text of the identifier would be read by a shell or another interpreter"
#define ANY_LETTER "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Where an interpreter's own options end. */
enum end {
    AT_PROGRAM, /* after the program there are only arguments */
    AT_WORD,    /* at the first word that is neither an option nor an operand */
    NOWHERE     /* options may follow arguments */
};

struct family {
    const char *const *names;
    const char *code;     /* options whose operand is the program */
    const char *operands; /* options that may have another operand */
    enum end end;
};

static const char *const shells[] = {
    "sh",     "bash",  "rbash", "dash", "ash", "hush", "ksh",  "rksh", "mksh", "lksh",
    "oksh",   "pdksh", "yash",  "posh", "zsh", "csh",  "tcsh", "fish", "rc",   "es",
    "elvish", "nu",    "xonsh", "osh",  "ysh", "pwsh", "sash", "scsh", NULL};
static const char *const pythons[] = {"python", "pypy", "ipython", "jython", "micropython", NULL};
static const char *const perls[] = {"perl", "raku", "perl6", NULL};
static const char *const rubies[] = {"ruby", "jruby", "irb", NULL};
static const char *const nodes[] = {"node", "nodejs", "deno", "bun", "qjs", NULL};
static const char *const phps[] = {"php", "php-cgi", NULL};
static const char *const luas[] = {"lua", "luajit", "texlua", NULL};
static const char *const scripted[] = {
    "tclsh", "wish",  "expect",       "guile",  "racket", "scheme",  "sbcl", "clisp",
    "ecl",   "emacs", "Rscript",      "R",      "octave", "julia",   "ghc",  "runghc",
    "ocaml", "erl",   "elixir",       "groovy", "scala",  "gnuplot", "awk",  "gawk",
    "mawk",  "nawk",  "original-awk", "goawk",  NULL};
static const char *const seds[] = {"sed", "gsed", "ssed", NULL};
/* Includes programs whose -c starts a shell. */
static const char *const others[] = {"jq",   "dc",      "gdb",     "vi",   "vim",     "nvim",
                                     "ex",   "ed",      "m4",      "make", "gmake",   "sqlite",
                                     "psql", "mysql",   "mariadb", "su",   "runuser", "script",
                                     "at",   "crontab", NULL};

static const struct family families[] = {
    {shells, "c", "oO", AT_PROGRAM}, {pythons, "cm", "WX", AT_PROGRAM},
    {perls, "eE", "I", AT_WORD},     {rubies, "e", "IrCEF", AT_WORD},
    {nodes, "ep", "rC", AT_WORD},    {phps, "rBRE", "cdfFStz", AT_WORD},
    {luas, "e", "l", AT_WORD},       {scripted, "ceEf", ANY_LETTER, AT_WORD},
    {seds, "ef", "l", NOWHERE},      {others, "cefr", ANY_LETTER, NOWHERE},
};

/* Programs that pass all their words, joined, to a shell. */
static const char *const joiners[] = {"ssh",  "rsh",    "watch",      "parallel", "eval",
                                      "tmux", "screen", "lxc-attach", "entr",     NULL};

/* Programs that run the program after this many words that are neither option nor operand. */
static const char *const wrappers0[] = {"env",
                                        "nice",
                                        "nohup",
                                        "setsid",
                                        "stdbuf",
                                        "ionice",
                                        "sudo",
                                        "doas",
                                        "busybox",
                                        "toybox",
                                        "xargs",
                                        "time",
                                        "unshare",
                                        "nsenter",
                                        "setarch",
                                        "linux32",
                                        "linux64",
                                        "setpriv",
                                        "strace",
                                        "ltrace",
                                        "valgrind",
                                        "systemd-run",
                                        "systemd-inhibit",
                                        "daemonize",
                                        "daemon",
                                        "bwrap",
                                        "firejail",
                                        "prlimit",
                                        "softlimit",
                                        "chpst",
                                        "numactl",
                                        "cgexec",
                                        "fakeroot",
                                        "unbuffer",
                                        "eatmydata",
                                        "rlwrap",
                                        "torsocks",
                                        "choom",
                                        "command",
                                        "exec",
                                        "builtin",
                                        "catchsegv",
                                        "start-stop-daemon",
                                        "capsh",
                                        "tini",
                                        "dumb-init",
                                        NULL};
static const char *const wrappers1[] = {
    "timeout", "chrt",   "taskset",  "chroot", "flock",   "perf",         "setuidgid", "envuidgid",
    "envdir",  "runcon", "faketime", "gosu",   "su-exec", "s6-setuidgid", NULL};
static const char *const wrappers3[] = {"ip", "docker", "podman", NULL};
static const char *const finders[] = {"find", "fd", NULL};

static const struct wrapper {
    const char *const *names;
    unsigned before;
} wrappers[] = {{wrappers0, 0}, {wrappers1, 1}, {wrappers3, 3}, {finders, 1000}};

/* Returns whether `word` is one of these programs, possibly with a version, such as python3.11. */
static bool is_one_of(const char *word, const char *const *names)
{
    const char *slash = strrchr(word, '/'), *base = slash ? slash + 1 : word;

    for (; *names; names++) {
        size_t n = strlen(*names);
        if (strncmp(base, *names, n) == 0 && base[n + strspn(base + n, "0123456789.-")] == '\0')
            return true;
    }
    return false;
}

static const struct family *find_family(const char *word)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (is_one_of(word, families[i].names))
            return &families[i];
    return NULL;
}

static const struct wrapper *find_wrapper(const char *word)
{
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++)
        if (is_one_of(word, wrappers[i].names))
            return &wrappers[i];
    return NULL;
}

static bool is_option(const char *word)
{
    return (*word == '-' || *word == '+') && word[1] != '\0';
}

/* Returns whether these are short options that include one of these letters. */
static bool has_letter(const char *word, const char *letters)
{
    return is_option(word) && word[1] != '-' && strpbrk(word + 1, letters);
}

enum wanted { ANYTHING, OPERAND, PROGRAM };

/* Returns what the word after this option is. *program: the option contains a program. */
static enum wanted wanted_by(const struct family *f, const char *option, enum wanted before,
                             bool *program)
{
    size_t last = strlen(option) - 1;

    if (strcmp(option, "--") == 0)
        return before == PROGRAM ? PROGRAM : ANYTHING;
    if (option[1] == '-')
        return before == PROGRAM ? PROGRAM : strchr(option, '=') ? ANYTHING : OPERAND;
    if (has_letter(option, f->code)) {
        bool last_is_code = strchr(f->code, option[last]) != NULL;
        if (f->end == AT_PROGRAM || last_is_code)
            return PROGRAM;
        if (strcmp(f->operands, ANY_LETTER) == 0) /* it may be a long one: -eval */
            return OPERAND;
        *program = true; /* attached */
        return ANYTHING;
    }
    if (before == PROGRAM)
        return PROGRAM;
    /* -Wignore contains its operand; a shell's -oe does not. */
    bool has = f->names == shells ? has_letter(option, f->operands)
                                  : strchr(f->operands, option[last]) != NULL;
    return has ? OPERAND : ANYTHING;
}

/* Examines an interpreter's command line; words[0] is the interpreter. */
static const char *guard_interpreter(const struct family *f, char *const *words,
                                     const bool *foreign, size_t n, size_t *at)
{
    enum wanted wanted = ANYTHING;
    bool program = false; /* a constant one was seen */

    for (size_t i = 1; i < n; i++) {
        bool option = is_option(words[i]);

        *at = i;
        if (foreign[i] && (option || wanted != ANYTHING || !program))
            return READ_BY;
        if (option) {
            wanted = wanted_by(f, words[i], wanted, &program);
            continue;
        }
        program = program || wanted != OPERAND;
        if ((f->end == AT_WORD && wanted == ANYTHING) || (f->end == AT_PROGRAM && program))
            return NULL;
        wanted = ANYTHING;
    }
    return NULL;
}

static const char *guard_joiner(const bool *foreign, size_t n, size_t *at)
{
    for (size_t i = 1; i < n; i++)
        if (foreign[i]) {
            *at = i;
            return READ_BY;
        }
    return NULL;
}

static bool is_known(const char *word)
{
    return find_family(word) || find_wrapper(word) || is_one_of(word, joiners);
}

/* Returns where the program that words[0] runs begins. n: none found; then *at is the identifier's
 * text that precedes it, or n. */
static size_t program_within(const struct wrapper *w, char *const *words, const bool *foreign,
                             size_t n, size_t *at)
{
    unsigned before = w->before;
    bool operand = false;

    *at = n;
    for (size_t i = 1; i < n; i++) {
        if (foreign[i]) {
            *at = i;
            return n;
        }
        if (is_known(words[i]))
            return i;
        if (is_option(words[i])) {
            operand = !strchr(words[i], '=');
            continue;
        }
        /* NAME=VALUE, or a number: a niceness, a duration, a mask */
        bool value = strchr(words[i], '=') || isdigit((unsigned char)*words[i]);
        if (!operand && !value && before == 0)
            return i;
        if (!operand && before > 0)
            before--;
        operand = false;
    }
    return n;
}

/* Finds an interpreter that some unknown program may run, with an option for a program right
 * before. */
static const char *guard_rest(char *const *words, const bool *foreign, size_t n, size_t *at)
{
    const struct family *f = NULL;

    for (size_t i = 1; i < n; i++) {
        if (f && foreign[i] &&
            (has_letter(words[i - 1], f->code) || has_letter(words[i], f->code))) {
            *at = i;
            return READ_BY;
        }
        if (!foreign[i] && find_family(words[i]))
            f = find_family(words[i]);
    }
    return NULL;
}

const char *guard_command(char *const *words, const bool *foreign, size_t n, size_t *at)
{
    size_t from = 0;
    const struct wrapper *w;

    *at = 0;
    if (foreign[0])
        return CHOOSES;
    while ((w = find_wrapper(words[from]))) {
        size_t within = program_within(w, words + from, foreign + from, n - from, at);
        if (within == n - from) {
            *at += from;
            return *at < n ? CHOOSES : NULL;
        }
        from += within;
    }
    const struct family *f = find_family(words[from]);
    const char *why = f ? guard_interpreter(f, words + from, foreign + from, n - from, at)
                      : is_one_of(words[from], joiners)
                          ? guard_joiner(foreign + from, n - from, at)
                          : guard_rest(words + from, foreign + from, n - from, at);
    *at += from;
    return why;
}
