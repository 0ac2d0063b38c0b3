/* SPDX-License-Identifier: Apache-2.0 */
/* The page's files as bytes, as they are and compressed; the build says where the two folders are. See page.h. */
	.section .rodata

.macro file symbol, path
	.globl \symbol
	.hidden \symbol
	.type \symbol, %object
\symbol:
	.incbin "\path"
	.globl \symbol\()_end
	.hidden \symbol\()_end
	.type \symbol\()_end, %object
\symbol\()_end:
	.byte 0
	.size \symbol, \symbol\()_end - \symbol
.endm

	file page_index, dist/index.html
	file page_index_gz, page/index.html.gz
	file page_js, dist/page.js
	file page_js_gz, page/page.js.gz
	file page_css, dist/page.css
	file page_css_gz, page/page.css.gz
	file page_icon, dist/icon.svg
	file page_licences, dist/licences.txt
	file page_licences_gz, page/licences.txt.gz
	file page_sans, dist/sans-400.woff2
	file page_sans_bold, dist/sans-600.woff2
	file page_mono, dist/mono-400.woff2
	file page_mono_bold, dist/mono-600.woff2
	.section .note.GNU-stack, "", %progbits
