// SPDX-License-Identifier: Apache-2.0
/* Linux kernel files into guest RAM. See image.h. */
#include "machine/image.h"

#include "base/cleanup.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <string.h>
#include <sys/stat.h>

#define SECTOR          512u
#define SETUP_HEADER_AT 0x1f1
#define BOOT_FLAG       0xaa55
#define HEADER_MAGIC    0x53726448 /* "HdrS" */
#define PROTOCOL_2_12   0x020c /* xloadflags */
#define ENTRY_64        0x200 /* into the part that is loaded */
#define LOADER_UNKNOWN  0xff
#define LOW_MIB         (1ull << 20)
#define COMMAND_LINE    2047 /* what x86 kernels take (COMMAND_LINE_SIZE - 1) */
#define MAX_SEGMENTS    64
#define MAX_NOTES_BYTES (1u << 20)
#define PVH_NOTE_NAME   "Xen"
#define PVH_NOTE_TYPE   18 /* XEN_ELFNOTE_PHYS32_ENTRY */

int image_pread(int fd, void *buf, u64 len, u64 off, const char *path, struct err *err)
{
	u8 *at = buf;

	while (len) {
		ssize_t n = pread(fd, at, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, -errno, ERR_IO, 0, "%s: %s", path,
				       strerrordesc_np(errno));
		if (n == 0)
			return err_set(err, -EIO, ERR_IO, 0, "%s is cut short", path);
		at += n;
		off += (u64)n;
		len -= (u64)n;
	}
	return 0;
}

static int bad_kernel(struct err *err, const char *path, const char *why)
{
	return err_set(err, -ENOEXEC, ERR_BAD_REQUEST, 0, "%s: %s", path, why);
}

static int no_room(struct err *err, const struct guest_mem *m, const char *path, u64 end)
{
	return err_set(err, -ENOSPC, ERR_BAD_REQUEST, 0,
		       "%s needs memory up to %llu MiB; the guest has %llu MiB", path,
		       (unsigned long long)((end + LOW_MIB - 1) >> 20),
		       (unsigned long long)(m->len >> 20));
}

/* The header of a bzImage; what follows byte 0x1f1 is as long as its jump says. */
static int check_header(const struct setup_header *h, const char *path, struct err *err)
{
	if (h->boot_flag != BOOT_FLAG || h->header != HEADER_MAGIC)
		return bad_kernel(err, path, "neither a bzImage nor an ELF file");
	if (h->version < PROTOCOL_2_12 || !(h->loadflags & LOADED_HIGH))
		return bad_kernel(err, path,
				  "too old: its boot protocol is before 2.12 (Linux 3.8)");
	if (!(h->xloadflags & XLF_KERNEL_64))
		return bad_kernel(err, path, "not a 64-bit x86 kernel");
	return 0;
}

static int load_bzimage(const struct guest_mem *m, int fd, const char *path,
			struct kernel_image *ret, struct err *err)
{
	u64 setup, len;
	struct stat st;
	void *at;
	int rc;

	if (fstat(fd, &st) < 0)
		return err_set(err, -errno, ERR_IO, 0, "%s: %s", path, strerrordesc_np(errno));
	if (st.st_size < (off_t)(SETUP_HEADER_AT + sizeof(ret->hdr)))
		return bad_kernel(err, path, "neither a bzImage nor an ELF file");
	rc = image_pread(fd, &ret->hdr, sizeof(ret->hdr), SETUP_HEADER_AT, path, err);
	if (!rc)
		rc = check_header(&ret->hdr, path, err);
	if (rc)
		return rc;
	setup = (1ull + (ret->hdr.setup_sects ? ret->hdr.setup_sects : 4)) * SECTOR;
	if ((u64)st.st_size <= setup + ENTRY_64)
		return bad_kernel(err, path, "the bzImage is cut short");
	len = (u64)st.st_size - setup;
	ret->start = ret->hdr.pref_address;
	if (ret->start < LOW_MIB ||
	    add_overflows(ret->start, MAX(len, ret->hdr.init_size), &ret->end))
		return bad_kernel(err, path, "the address it is to be loaded at makes no sense");
	if (ret->end > mem_low_bytes(m))
		return no_room(err, m, path, ret->end);
	at = mem_at(m, gpa(ret->start), len);
	if (!at)
		return no_room(err, m, path, ret->end);
	ret->entry = ret->start + ENTRY_64;
	ret->cmdline_max = ret->hdr.cmdline_size;
	return image_pread(fd, at, len, setup, path, err);
}

static int load_segment(const struct guest_mem *m, int fd, const GElf_Phdr *p, const char *path,
			struct kernel_image *ret, struct err *err)
{
	u64 end;
	void *at;

	if (p->p_filesz > p->p_memsz || add_overflows(p->p_paddr, p->p_memsz, &end) ||
	    p->p_paddr < LOW_MIB)
		return bad_kernel(err, path, "a program header makes no sense");
	if (end > mem_low_bytes(m))
		return no_room(err, m, path, end);
	ret->start = MIN(ret->start, p->p_paddr);
	ret->end = MAX(ret->end, end);
	if (!p->p_filesz)
		return 0;
	at = mem_at(m, gpa(p->p_paddr), p->p_filesz);
	if (!at)
		return no_room(err, m, path, end);
	return image_pread(fd, at, p->p_filesz, p->p_offset, path, err);
}

/* The address in a note of @p's that says where a CPU in 32-bit mode may start; 0: there is none. */
static u64 pvh_entry_of(Elf *elf, const GElf_Phdr *p)
{
	Elf_Type type = p->p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR;
	Elf_Data *data;
	GElf_Nhdr note;
	size_t at = 0, name, desc;
	u64 entry = 0;

	if (p->p_filesz > MAX_NOTES_BYTES)
		return 0;
	data = elf_getdata_rawchunk(elf, (int64_t)p->p_offset, p->p_filesz, type);
	while (data && (at = gelf_getnote(data, at, &note, &name, &desc)) > 0) {
		const u8 *bytes = data->d_buf;

		if (note.n_type != PVH_NOTE_TYPE || note.n_namesz != sizeof(PVH_NOTE_NAME) ||
		    memcmp(bytes + name, PVH_NOTE_NAME, sizeof(PVH_NOTE_NAME)) != 0 ||
		    (note.n_descsz != 4 && note.n_descsz != 8))
			continue;
		memcpy(&entry, bytes + desc, note.n_descsz);
		break;
	}
	return entry;
}

static bool is_loaded(const struct kernel_image *k, u64 addr)
{
	return addr >= k->start && addr < k->end;
}

/* vmlinux is entered at startup_64 with a zero page in rsi, as the decompressor of a bzImage does it. */
static int load_elf(const struct guest_mem *m, int fd, Elf *elf, const char *path,
		    struct kernel_image *ret, struct err *err)
{
	GElf_Ehdr eh;
	size_t n;
	u64 pvh = 0;
	int rc;

	if (!gelf_getehdr(elf, &eh) || elf_getphdrnum(elf, &n) < 0 || eh.e_machine != EM_X86_64 ||
	    eh.e_type != ET_EXEC)
		return bad_kernel(err, path, "an ELF file, but no x86-64 kernel");
	if (n == 0 || n > MAX_SEGMENTS)
		return bad_kernel(err, path, "an ELF file with no or too many program headers");
	ret->start = UINT64_MAX;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr p;

		if (!gelf_getphdr(elf, (int)i, &p))
			return bad_kernel(err, path, "a program header cannot be read");
		if (p.p_type == PT_NOTE && !pvh)
			pvh = pvh_entry_of(elf, &p);
		if (p.p_type != PT_LOAD || !p.p_memsz)
			continue;
		rc = load_segment(m, fd, &p, path, ret, err);
		if (rc)
			return rc;
	}
	ret->entry = is_loaded(ret, eh.e_entry) ? eh.e_entry : 0;
	ret->pvh_entry = is_loaded(ret, pvh) ? pvh : 0;
	if (!ret->entry && !ret->pvh_entry)
		return bad_kernel(err, path, "its entry lies outside of what is loaded");
	ret->cmdline_max = COMMAND_LINE;
	ret->hdr = (struct setup_header){ .boot_flag = BOOT_FLAG,
					  .header = HEADER_MAGIC,
					  .version = PROTOCOL_2_12,
					  .loadflags = LOADED_HIGH,
					  .kernel_alignment = 2u << 20,
					  .initrd_addr_max = 0x7fffffff,
					  .cmdline_size = COMMAND_LINE };
	return 0;
}

int image_load(const struct guest_mem *m, const char *path, struct kernel_image *ret,
	       struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf *elf;
	int rc;

	*ret = (struct kernel_image){ 0 };
	if (fd < 0)
		return err_set(err, -errno, ERR_IO, 0, "%s: %s", path, strerrordesc_np(errno));
	if (elf_version(EV_CURRENT) == EV_NONE)
		return err_set(err, -ENOTSUP, ERR_NONE, 0, "libelf is too old");
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (elf && elf_kind(elf) == ELF_K_ELF)
		rc = load_elf(m, fd, elf, path, ret, err);
	else
		rc = load_bzimage(m, fd, path, ret, err);
	elf_end(elf);
	ret->hdr.type_of_loader = LOADER_UNKNOWN;
	return rc;
}
