/* SPDX-License-Identifier: Apache-2.0 */
/* openapi.yaml as it is in the source tree, put into the daemon by openapi.S. */
#ifndef API_OPENAPI_H
#define API_OPENAPI_H

extern const char api_openapi[];
extern const char api_openapi_end[];

#endif
