// SPDX-License-Identifier: Apache-2.0
/* /v1/session: a browser's way to send its token with everything, also where scripts cannot add a header. */
#include "api/body.h"
#include "api/resources.h"
#include "api/server.h"

#include <stdio.h>

void res_session_create(struct request *rq)
{
	char token[AUTH_TOKEN_TEXT];
	struct buf none = { 0 };
	struct identity who;
	struct problem p;

	if (body_session_parse(rq->body.data, rq->body.len, token, &p) < 0) {
		request_problem(rq, &p);
		return;
	}
	if (!auth_token(server_auth(rq->srv), token, &who)) {
		problem_from_code(&p, PROBLEM_WHO, "the token is none that this daemon knows");
		request_problem(rq, &p);
		return;
	}
	/* not for scripts, and not with what other sites' pages send; gone when the browser is */
	snprintf(rq->reply.cookie, sizeof(rq->reply.cookie),
		 REQUEST_COOKIE "=%s; Path=/; HttpOnly; SameSite=Strict%s", token,
		 rq->is_tls ? "; Secure" : "");
	request_text(rq, 204, NULL, &none);
}
