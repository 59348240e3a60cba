/* SPDX-License-Identifier: Apache-2.0 */
#include "selection.h"

#include "tool.h"

void selection_pattern(struct selection *s, const char *text)
{
    ere_free(s->pattern);
    char why[512];
    if (ere_compile(&s->pattern, text, false, why, sizeof why) < 0)
        tool_usage("-p: found \"%s\" (%s); valid: an extended regular expression", text, why);
}

bool selection_has(const struct selection *s, const struct pq_info *info)
{
    return (info->feedtype & s->feed) &&
           (!s->pattern || ere_match(s->pattern, info->ident) == ERE_YES);
}

void selection_free(struct selection *s)
{
    ere_free(s->pattern);
    s->pattern = NULL;
}
