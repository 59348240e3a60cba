#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ctcp-load refuses bad arguments with one message and exit code 2, before it calls the kernel.
load=$1
failed=0
refuse() {
    wanted=$1
    shift
    complaint=$("$load" "$@" 2>&1 >/dev/null)
    code=$?
    case "$code $complaint" in
    "2 "*"$wanted"*) ;;
    *)
        echo "$*: exit code $code: $complaint; wanted 2: $wanted"
        failed=1
        ;;
    esac
}
object=$(mktemp)
trap 'rm -f "$object"' EXIT
echo "not an object" >"$object"
refuse "usage:"
refuse "usage:" --name ctcp_a --cwnd 10
refuse "usage:" --unregister ctcp_a --cwnd 10
refuse "usage:" --object "$object" --name ctcp_a --cwnd 10 more
refuse "found name 'cubic'" --object "$object" --name cubic --cwnd 10
refuse "found name 'ctcp_'" --object "$object" --name ctcp_ --cwnd 10
refuse "found name 'ctcp_0123456789a'" --object "$object" --name ctcp_0123456789a --cwnd 10
refuse "found name 'ctcp_a b'" --unregister "ctcp_a b"
refuse "found --cwnd '0'" --object "$object" --name ctcp_a --cwnd 0
refuse "found --cwnd '-1'" --object "$object" --name ctcp_a --cwnd -1
refuse "found --cwnd '10x'" --object "$object" --name ctcp_a --cwnd 10x
refuse "found --cwnd '99999999999999999999'" --object "$object" --name ctcp_a --cwnd 99999999999999999999
refuse "not the object of ctcp.bpf.c" --object "$object" --name ctcp_a --cwnd 10
refuse "/nonexistent: No such file" --object /nonexistent --name ctcp_a --cwnd 10
exit $failed
