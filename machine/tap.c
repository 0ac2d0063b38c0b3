// SPDX-License-Identifier: Apache-2.0
/* A tap device. See tap.h. Source: Linux Documentation/networking/tuntap.rst; <linux/if_tun.h>. */
#include "machine/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define HEADER_BYTES ((int)sizeof(struct virtio_net_hdr_v1))

static int cannot_open(struct err *err, const char *name, int no)
{
	switch (no) {
	case EPERM:
	case EACCES:
		return err_set(err, -EPERM, ERR_BAD_REQUEST, 0,
			       "--net tap=%s: no permission to use it: ip tuntap add dev %s mode "
			       "tap user $USER makes one that you may use",
			       name, name);
	case EBUSY:
		return err_set(err, -EBUSY, ERR_BAD_REQUEST, 0,
			       "--net tap=%s: another process has it", name);
	default:
		return err_set(err, -no, ERR_IO, 0, "--net tap=%s: %s", name, strerrordesc_np(no));
	}
}

static int open_named(struct tap *t, const char *name, struct err *err)
{
	struct ifreq r = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };

	if (strlen(name) >= sizeof(r.ifr_name))
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "--net tap=%.40s: an interface's name has at most 15 characters",
			       name);
	/* the kernel would make one, which would be connected to nothing */
	if (!if_nametoindex(name))
		return err_set(err, -ENODEV, ERR_BAD_REQUEST, 0,
			       "--net tap=%s: no such interface: ip tuntap add dev %s mode tap "
			       "makes one",
			       name, name);
	t->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (t->fd < 0)
		return err_set(err, -errno, ERR_IO, 0, "--net tap=%s: /dev/net/tun: %s", name,
			       strerrordesc_np(errno));
	memcpy(r.ifr_name, name, strlen(name) + 1);
	if (ioctl(t->fd, TUNSETIFF, &r) < 0)
		return errno == EINVAL
			       ? err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
					 "--net tap=%s: not a tap, or one with several queues",
					 name)
			       : cannot_open(err, name, errno);
	return 0;
}

static int take_over(struct tap *t, int fd, struct err *err)
{
	int flags = fcntl(fd, F_GETFL);
	struct ifreq r;

	if (flags < 0 || ioctl(fd, TUNGETIFF, &r) < 0 || !(r.ifr_flags & IFF_TAP))
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "--net fd=%d is not a tap", fd);
	if (!(r.ifr_flags & IFF_NO_PI))
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "--net fd=%d: the tap must be opened with IFF_NO_PI", fd);
	if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return err_set(err, -errno, ERR_IO, 0, "--net fd=%d: %s", fd,
			       strerrordesc_np(errno));
	t->fd = fd;
	return 0;
}

/* With a header before each packet, as long as a virtio 1 driver's; then there may be offloads. */
static int find_offloads(struct tap *t, struct err *err)
{
	static const u32 tries[] = { TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN,
				     TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6, TUN_F_CSUM };
	int len = HEADER_BYTES;
	struct ifreq r;

	if (ioctl(t->fd, TUNGETIFF, &r) < 0 || !(r.ifr_flags & IFF_VNET_HDR))
		return 0;
	if (ioctl(t->fd, TUNSETVNETHDRSZ, &len) < 0)
		return err_set(err, -errno, ERR_IO, 0, "the tap's header: %s",
			       strerrordesc_np(errno));
	t->header = HEADER_BYTES;
	for (size_t i = 0; i < ARRAY_SIZE(tries) && !t->offloads; i++) {
		if (tap_offload(t, tries[i]))
			t->offloads = tries[i];
	}
	/* none until a driver asks for them */
	if (!tap_offload(t, 0))
		t->offloads = 0;
	return 0;
}

/* The same at each start, so that the guest's addresses stay: FNV-1a. Locally administered, no group. */
static void make_up_mac(u8 *mac, const char *name)
{
	u64 h = 0xcbf29ce484222325ull;
	char text[128] = "";
	size_t n;

	(void)gethostname(text, sizeof(text) - IF_NAMESIZE - 1);
	n = strlen(text);
	memcpy(text + n, name, strnlen(name, IF_NAMESIZE));
	for (const char *c = text; *c; c++)
		h = (h ^ (u8)*c) * 0x100000001b3ull;
	memcpy(mac, &h, MAC_BYTES);
	mac[0] = (u8)((mac[0] & ~1) | 2);
}

int tap_open(struct tap *t, const struct net_source *s, struct err *err)
{
	static const u8 none[MAC_BYTES];
	struct ifreq r = { .ifr_name = "" };
	int rc;

	*t = (struct tap){ .fd = -1 };
	rc = s->tap ? open_named(t, s->tap, err) : take_over(t, s->fd, err);
	if (!rc)
		rc = find_offloads(t, err);
	if (rc)
		return rc;
	memcpy(t->mac, s->mac, MAC_BYTES);
	if (memcmp(t->mac, none, MAC_BYTES) == 0) {
		(void)ioctl(t->fd, TUNGETIFF, &r);
		make_up_mac(t->mac, r.ifr_name);
	}
	return 0;
}

void tap_close(struct tap *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
}

bool tap_offload(const struct tap *t, u32 offloads)
{
	return ioctl(t->fd, TUNSETOFFLOAD, (unsigned long)offloads) == 0;
}
