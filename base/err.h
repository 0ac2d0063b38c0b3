/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one error idiom: functions return 0 or a negative errno; the story goes into a caller-owned
 * struct err, which is never allocated and may be NULL. Must not know about any other folder.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/err_codes.h"
#include "base/types.h"

struct err {
	int no; /* negative errno; 0 when nothing failed */
	enum err_code code; /* stable code for the API */
	u64 addr; /* guest address concerned, 0 when none */
	char msg[192]; /* one clear sentence */
};

/**
 * err_set - record a failure and return it
 * @err:  filled; may be NULL
 * @no:   negative errno, returned as it is
 * @code: stable code, or ERR_NONE for "no special one"
 * @addr: guest address concerned or 0
 * @fmt:  one sentence: what failed, on what, found and expected; no trailing newline
 *
 * Context: any thread; does not allocate. Return: @no.
 */
int err_set(struct err *err, int no, enum err_code code, u64 addr, const char *fmt, ...)
	printf_like(5, 6);
#ifdef __clang_analyzer__ /* which looks at one file at a time: it is told what is returned */
#define err_set(err, no, ...) ((void)err_set(err, no, __VA_ARGS__), (no))
#endif

/**
 * err_wrap - put words in front of the message of an error already set
 *
 * Context: any thread. Return: @err->no, or -EIO when @err is NULL.
 */
int err_wrap(struct err *err, const char *fmt, ...) printf_like(2, 3);

/** err_code_name - the stable string of @code, as in the API's problem documents */
const char *err_code_name(enum err_code code);

/** err_code_hint - what a user can do about @code */
const char *err_code_hint(enum err_code code);

/** err_code_status - the HTTP status of @code */
int err_code_status(enum err_code code);

#endif
