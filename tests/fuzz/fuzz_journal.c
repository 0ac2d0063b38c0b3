// SPDX-License-Identifier: Apache-2.0
/* The journal's bytes may be anything: what is read from them stays within bounds. */
#include "patcher/journal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct journal_state s, again;
	size_t used, used_again;

	if (journal_parse(data, size, &s, &used, NULL))
		return 0;
	must(used <= size);
	must(s.n_text <= size / sizeof(struct journal_text));
	for (size_t i = 0; i < s.n_text; i++)
		must(s.text[i].len >= 1 && s.text[i].len <= JOURNAL_TEXT_MAX);
	/* what was used says the same on its own */
	must(!journal_parse(data, used, &again, &used_again, NULL));
	must(used_again == used && again.n_text == s.n_text && again.mailbox == s.mailbox);
	journal_state_deinit(&again);
	journal_state_deinit(&s);
	return 0;
}
