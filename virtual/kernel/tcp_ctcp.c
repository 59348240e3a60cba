/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Circuit TCP, built in: TCP whose congestion window is a fixed number of segments, whatever is lost.
 * The twin of topologies/ctcp/ctcp.bpf.c, for a kernel that is built for us anyway. The window is
 * /sys/module/tcp_ctcp/parameters/cwnd; a connection keeps the one in force when it began.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/version.h>
#include <net/tcp.h>

#define CWND_MAX 1000000

static unsigned int cwnd = 10;

static int set_cwnd(const char *text, const struct kernel_param *parameter)
{
	return param_set_uint_minmax(text, parameter, 1, CWND_MAX);
}

static const struct kernel_param_ops cwnd_ops = {
	.set = set_cwnd,
	.get = param_get_uint,
};
module_param_cb(cwnd, &cwnd_ops, &cwnd, 0644);
MODULE_PARM_DESC(cwnd, "congestion window of new connections in segments, 1 to 1000000");

struct ctcp {
	u32 cwnd;
};

static u32 fixed_cwnd(struct sock *sk)
{
	const struct ctcp *ctcp = inet_csk_ca(sk);

	return ctcp->cwnd;
}

static void fix(struct sock *sk)
{
	tcp_snd_cwnd_set(tcp_sk(sk), fixed_cwnd(sk));
}

static void ctcp_init(struct sock *sk)
{
	struct ctcp *ctcp = inet_csk_ca(sk);

	ctcp->cwnd = cwnd;
	/* A socket that was on bbr before would keep its pacing. */
	WRITE_ONCE(sk->sk_pacing_status, SK_PACING_NONE);
	WRITE_ONCE(sk->sk_pacing_rate, ~0UL);
	fix(sk);
}

/* In place of all window changes on an acknowledgement, those during recovery (PRR) included. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static void ctcp_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
#else
static void ctcp_cong_control(struct sock *sk, const struct rate_sample *rs)
#endif
{
	fix(sk);
}

/* A retransmission timeout sets the window to 1 segment and then changes the state. */
static void ctcp_set_state(struct sock *sk, u8 new_state)
{
	fix(sk);
}

static struct tcp_congestion_ops ctcp = {
	.init = ctcp_init,
	.ssthresh = fixed_cwnd,
	.undo_cwnd = fixed_cwnd,
	.cong_control = ctcp_cong_control,
	.set_state = ctcp_set_state,
	/* Else only the root network namespace may have it as its default. */
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "ctcp",
	.owner = THIS_MODULE,
};

static int __init ctcp_register(void)
{
	BUILD_BUG_ON(sizeof(struct ctcp) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&ctcp);
}
module_init(ctcp_register);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("TCP Circuit: a fixed congestion window");
