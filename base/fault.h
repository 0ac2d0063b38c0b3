/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault points: places where a test build dies as under kill -9, to show that the next start puts
 * everything right. In a build without HVF_FAULT_POINTS they are nothing.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#ifdef HVF_FAULT_POINTS
/** fault_point - SIGKILL ourselves when the environment says HVF_FAULT=@name or HVF_FAULT=@name:N
 * and this is the first, or the Nth, time that we come by */
void fault_point(const char *name);
#else
static inline void fault_point(const char *name)
{
	(void)name;
}
#endif

#endif
