/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a request is let in: who asks, from where, for which route, with which role, query and body.
 * Knows the HTTP library; handlers do not.
 */
#ifndef API_ADMIT_H
#define API_ADMIT_H

#include "api/auth.h"
#include "api/request.h"

/* Where a connection comes in. */
struct admit_place {
	struct auth *auth;
	bool is_tcp;
	bool is_tls; /* is_tcp too */
};

/** admit_identify - who sent @rq, into rq->who. Context: the connection's HTTP thread. */
void admit_identify(struct request *rq, const struct admit_place *place);

/**
 * admit_request - find the route and check what holds for all
 *
 * Return: false when it is refused; the reply is made then. Context: as admit_identify(), which was called.
 */
bool admit_request(struct request *rq, const struct admit_place *place);

#endif
