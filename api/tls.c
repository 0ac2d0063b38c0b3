// SPDX-License-Identifier: Apache-2.0
/* TLS. See tls.h. */
#include "api/tls.h"

#include "base/buf.h"
#include "base/cleanup.h"
#define LOG_PREFIX "tls"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PEM    1048576
#define PRIORITIES "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

static int read_file(const char *path, bool secret, char **ret, struct err *err)
{
	_cleanup_buf_ struct buf b = { 0 };
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st;
	ssize_t n = 0;
	char *at;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(err, -errno, ERR_IO, 0, "cannot read %.120s: %s", path,
			       strerrordesc_np(errno));
	if (!S_ISREG(st.st_mode) || st.st_size > MAX_PEM)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "%.120s is no PEM file", path);
	if (secret && st.st_mode & 077)
		return err_set(err, -EPERM, ERR_BAD_REQUEST, 0,
			       "%.120s can be read by others than its owner: chmod 600 it", path);
	at = buf_reserve(&b, MAX_PEM + 1);
	while (at && b.len <= MAX_PEM &&
	       (n = read(fd, b.data + b.len, (size_t)MAX_PEM + 1 - b.len)) > 0)
		b.len += (size_t)n;
	if (!at)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %.120s", path);
	if (n < 0 || b.len > MAX_PEM)
		return err_set(err, -EIO, ERR_IO, 0, "cannot read %.120s", path);
	*ret = strndup(b.data, b.len);
	return *ret ? 0 : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %.120s", path);
}

/* The library says nothing but "no" later, so find out here. */
static int check_pair(const struct tls_files *f, const char *cert, struct err *err)
{
	gnutls_datum_t c = { (u8 *)f->cert, (unsigned)strlen(f->cert) };
	gnutls_datum_t k = { (u8 *)f->key, (unsigned)strlen(f->key) };
	gnutls_certificate_credentials_t cred;
	int r;

	if (gnutls_certificate_allocate_credentials(&cred) < 0)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for TLS");
	r = gnutls_certificate_set_x509_key_mem(cred, &c, &k, GNUTLS_X509_FMT_PEM);
	if (r >= 0 && f->client_ca) {
		c = (gnutls_datum_t){ (u8 *)f->client_ca, (unsigned)strlen(f->client_ca) };
		r = gnutls_certificate_set_x509_trust_mem(cred, &c, GNUTLS_X509_FMT_PEM);
	}
	gnutls_certificate_free_credentials(cred);
	if (r < 0)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "%.100s, its key and those who sign clients' certificates: %s", cert,
			       gnutls_strerror(r));
	return 0;
}

int tls_load(const char *cert, const char *key, const char *client_ca, struct tls_files *ret,
	     struct err *err)
{
	int r;

	*ret = (struct tls_files){ 0 };
	r = read_file(cert, false, &ret->cert, err);
	if (r == 0)
		r = read_file(key, true, &ret->key, err);
	if (r == 0 && client_ca)
		r = read_file(client_ca, false, &ret->client_ca, err);
	if (r == 0)
		r = check_pair(ret, cert, err);
	if (r < 0)
		tls_unload(ret);
	return r;
}

void tls_unload(struct tls_files *f)
{
	if (f->key)
		explicit_bzero(f->key, strlen(f->key));
	free(f->cert);
	free(f->key);
	free(f->client_ca);
	*f = (struct tls_files){ 0 };
}

void tls_options(const struct tls_files *f, struct MHD_OptionItem *ret)
{
	size_t n = 0;

	if (f) {
		ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_CERT, 0, f->cert };
		ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_KEY, 0, f->key };
		ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_PRIORITIES, 0,
						    (void *)(uintptr_t)PRIORITIES };
	}
	if (f && f->client_ca)
		ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_TRUST, 0, f->client_ca };
	ret[n] = (struct MHD_OptionItem){ MHD_OPTION_END, 0, NULL };
}

static bool common_name(const gnutls_datum_t *der, char ret[AUTH_MAX_NAME + 1])
{
	size_t size = AUTH_MAX_NAME + 1;
	gnutls_x509_crt_t crt;
	bool good;

	if (gnutls_x509_crt_init(&crt) < 0)
		return false;
	good = gnutls_x509_crt_import(crt, der, GNUTLS_X509_FMT_DER) >= 0 &&
	       gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, ret, &size) >=
		       0 &&
	       strlen(ret) == size; /* no NUL in it */
	gnutls_x509_crt_deinit(crt);
	return good;
}

bool tls_peer_name(struct MHD_Connection *conn, char ret[AUTH_MAX_NAME + 1])
{
	const union MHD_ConnectionInfo *info;
	gnutls_typed_vdata_st purpose = { .type = GNUTLS_DT_KEY_PURPOSE_OID,
					  .data = (u8 *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT };
	const gnutls_datum_t *certs;
	unsigned n = 0, status = ~0u;
	gnutls_session_t session;

	info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	if (!info || !info->tls_session)
		return false;
	session = info->tls_session;
	certs = gnutls_certificate_get_peers(session, &n);
	if (!certs || !n)
		return false;
	if (gnutls_certificate_verify_peers(session, &purpose, 1, &status) < 0 || status) {
		log_info("a client's certificate is not good (status 0x%x)", status);
		return false;
	}
	return common_name(&certs[0], ret);
}
