/* SPDX-License-Identifier: Apache-2.0 */
/* The API's description as bytes; API_OPENAPI_FILE is its path, given by the build. */
	.section .rodata
	.globl api_openapi
	.hidden api_openapi
	.type api_openapi, %object
api_openapi:
	.incbin API_OPENAPI_FILE
	.globl api_openapi_end
	.hidden api_openapi_end
	.type api_openapi_end, %object
api_openapi_end:
	.byte 0
	.size api_openapi, api_openapi_end - api_openapi
	.section .note.GNU-stack, "", %progbits
