/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

int fmtp_check_session(enum fmtp_layout layout, const struct sockaddr_storage *group,
                       unsigned mac_level, bool has_key, struct tp_error *err)
{
    char text[TP_ADDRESS_TEXT];

    if (layout != FMTP_LAYOUT_2017 && layout != FMTP_LAYOUT_2021)
        return tp_fail(err, "layout %d; valid: 2017 and 2021", (int)layout);
    if (!tp_address_is_multicast(group) || !tp_address_port(group))
        return tp_fail(err,
                       "group %s; valid: 224.0.0.0 to 239.255.255.255 or ff00::/8 with a "
                       "port",
                       tp_address_text((const struct sockaddr *)group, text));
    if (mac_level > FMTP_MAC_AUTO ||
        (mac_level && mac_level != FMTP_MAC_AUTO && layout == FMTP_LAYOUT_2017))
        return tp_fail(err, "MAC level %u; valid: 0, 1 and 2, in layout 2017 only 0", mac_level);
    if (has_key && (!mac_level || layout == FMTP_LAYOUT_2017))
        return tp_fail(err, "a key, but MAC level 0; valid: MAC levels 1 and 2 in layout 2021");
    return 0;
}
