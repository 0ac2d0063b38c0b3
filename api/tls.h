/* SPDX-License-Identifier: Apache-2.0 */
/* TLS of the daemon, on GnuTLS through libmicrohttpd. */
#ifndef API_TLS_H
#define API_TLS_H

#include "api/auth.h"
#include "base/err.h"

struct MHD_Connection;
struct MHD_OptionItem;

/* PEM, NUL-terminated. */
struct tls_files {
	char *cert, *key;
	char *client_ca; /* NULL: clients are not asked for certificates */
};

/**
 * tls_load - read certificate and key
 * @client_ca: file of those who sign clients' certificates; NULL for none
 *
 * Return: 0; -EPERM others than its owner may read the key; -EINVAL it is none, or not the certificate's; or
 * the system's. Undo: tls_unload().
 */
must_check int tls_load(const char *cert, const char *key, const char *client_ca,
			struct tls_files *ret, struct err *err);
void tls_unload(struct tls_files *f);

/** tls_options - for MHD_OPTION_ARRAY, at most 8; @f NULL gives an empty list */
void tls_options(const struct tls_files *f, struct MHD_OptionItem *ret);

/**
 * tls_peer_name - the common name of the client's certificate
 *
 * The library only asks for one: here it is verified, that it is one for clients too.
 * Return: false: there is none, or it is not good.
 */
bool tls_peer_name(struct MHD_Connection *conn, char ret[AUTH_MAX_NAME + 1]);

#endif
