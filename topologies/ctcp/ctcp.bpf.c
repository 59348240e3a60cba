/* SPDX-License-Identifier: Apache-2.0
 *
 * Circuit TCP as MPUP16 V-B uses it: TCP whose congestion window is a fixed number of segments
 * despite loss. It is a congestion control in BPF (struct_ops; since Linux 6.0 it may write the
 * pacing fields). ctcp-load sets its name and its window.
 *
 * Only the fields in use of the kernel's structures are declared: their offsets are found when the
 * program is loaded (BTF relocation), so one object fits every kernel.
 */
typedef unsigned int u32;

#define SEC(name) __attribute__((section(name), used))
#define RELOCATED __attribute__((preserve_access_index))

struct sock {
    unsigned long sk_pacing_rate;
    u32 sk_pacing_status;
} RELOCATED;

struct tcp_sock {
    u32 snd_cwnd;
    u32 snd_ssthresh;
} RELOCATED;

/* A program's context: its arguments as 64-bit words, the first of them the socket. */
typedef unsigned long long context;

struct tcp_congestion_ops {
    void (*init)(struct sock *sk);
    u32 (*ssthresh)(struct sock *sk);
    u32 (*undo_cwnd)(struct sock *sk);
    void (*cong_control)(struct sock *sk);
    void (*set_state)(struct sock *sk, unsigned char new_state);
    u32 flags;
    char name[16];
};

/* TCP_CONG_NON_RESTRICTED: without it, only the root network namespace may use this as its
 * default. */
#define NON_RESTRICTED 1

/* Segments; set by ctcp-load before the program is loaded. */
const volatile u32 fixed_cwnd = 10;

static inline __attribute__((always_inline)) void fix(struct tcp_sock *tp)
{
    tp->snd_cwnd = fixed_cwnd;
}

SEC("struct_ops/ctcp_init") void ctcp_init(context *arguments)
{
    struct sock *sk = (struct sock *)arguments[0];
    /* A socket that used bbr before would keep its pacing; SK_PACING_NONE ends it. */
    sk->sk_pacing_status = 0;
    sk->sk_pacing_rate = ~0UL;
    fix((struct tcp_sock *)sk);
}

SEC("struct_ops/ctcp_ssthresh") u32 ctcp_ssthresh(context *arguments)
{
    (void)arguments;
    return fixed_cwnd;
}

SEC("struct_ops/ctcp_undo_cwnd") u32 ctcp_undo_cwnd(context *arguments)
{
    (void)arguments;
    return fixed_cwnd;
}

/* Replaces all window changes on acknowledgements, including those during recovery (PRR). */
SEC("struct_ops/ctcp_cong_control") void ctcp_cong_control(context *arguments)
{
    fix((struct tcp_sock *)arguments[0]);
}

/* A retransmission timeout sets the window to 1 segment and then changes the state. */
SEC("struct_ops/ctcp_set_state") void ctcp_set_state(context *arguments)
{
    fix((struct tcp_sock *)arguments[0]);
}

/* A placeholder of full length, which ctcp-load replaces by the name. */
SEC(".struct_ops")
struct tcp_congestion_ops ctcp = {
    .init = (void *)ctcp_init,
    .ssthresh = (void *)ctcp_ssthresh,
    .undo_cwnd = (void *)ctcp_undo_cwnd,
    .cong_control = (void *)ctcp_cong_control,
    .set_state = (void *)ctcp_set_state,
    .flags = NON_RESTRICTED,
    .name = "@ctcp-load:name",
};

/* The kernel admits only congestion controls whose license is compatible with its own. */
SEC("license") char program_license[] = "GPL";
