// SPDX-License-Identifier: Apache-2.0
/* Takes the place of body.c's weak function. */
int soft(int a);

int __attribute__((noinline)) soft(int a)
{
	return a ^ 1;
}
