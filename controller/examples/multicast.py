# SPDX-License-Identifier: Apache-2.0
"""A multicast tree at one switch: a meter, a group with a VLAN id for each leaf, and a flow.

ryu-manager FILE, osken-manager FILE, or with os-ken 4 python -m controller manager FILE
"""

import sys

if "ryu.cmd.manager" in sys.modules:  # what runs this file
    from ryu.base.app_manager import RyuApp as App
    from ryu.controller import ofp_event
    from ryu.controller.handler import CONFIG_DISPATCHER, set_ev_cls
    from ryu.ofproto import ofproto_v1_3 as ofp
else:
    from os_ken.base.app_manager import OSKenApp as App
    from os_ken.controller import ofp_event
    from os_ken.controller.handler import CONFIG_DISPATCHER, set_ev_cls
    from os_ken.ofproto import ofproto_v1_3 as ofp

ROOT_PORT, ROOT_VLAN, RATE_KBPS, BURST_KBIT = 1, 101, 20_000, 1_000
LEAVES = {2: 102, 3: 103}  # port: VLAN id
METER, GROUP = 1, 1


class Multicast(App):  # type: ignore[misc]
    OFP_VERSIONS = [ofp.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)  # type: ignore[untyped-decorator]
    def switch_connected(self, event: ofp_event.EventOFPSwitchFeatures) -> None:
        """Install the meter and the group, then the flow that sends frames through both."""
        switch = event.msg.datapath
        make = switch.ofproto_parser
        band = make.OFPMeterBandDrop(rate=RATE_KBPS, burst_size=BURST_KBIT)
        kind = ofp.OFPMF_KBPS | ofp.OFPMF_BURST
        switch.send_msg(make.OFPMeterMod(switch, ofp.OFPMC_ADD, kind, METER, [band]))
        buckets = []
        for port, vlan in LEAVES.items():
            translate = make.OFPActionSetField(vlan_vid=ofp.OFPVID_PRESENT | vlan)
            buckets.append(make.OFPBucket(actions=[translate, make.OFPActionOutput(port)]))
        switch.send_msg(make.OFPGroupMod(switch, ofp.OFPGC_ADD, ofp.OFPGT_ALL, GROUP, buckets))
        match = make.OFPMatch(in_port=ROOT_PORT, vlan_vid=ofp.OFPVID_PRESENT | ROOT_VLAN)
        out = make.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [make.OFPActionGroup(GROUP)])
        steps = [make.OFPInstructionMeter(METER), out]
        switch.send_msg(make.OFPFlowMod(switch, match=match, priority=100, instructions=steps))
