#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

// Arrays of characters that no NUL ends.
struct head {
	char tag[4], kind[4];
	unsigned n;
	unsigned char mac[6];
	signed char small[3];
	char name[2][3];
	char one[1];
	char long_one[300];
};

__attribute__((noinline)) void look(struct head *p, char (*at_end)[4], const char *s) {
	__asm__ volatile("" : : "r"(p), "r"(at_end), "r"(s) : "memory");
}

int main(void) {
	struct head h;
	memset(&h, 'x', sizeof h);
	memcpy(h.tag, "RIFF", 4);
	memcpy(h.kind, "WAVE", 4);
	memcpy(h.mac, "\0\1\2\3\4\377", 6);
	memcpy(h.small, "\377\0\1", 3);
	memcpy(h.name, "ab\0cde", 6);
	h.n = 0x41424344;
	char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + 4096, 4096);
	memcpy(page + 4092, "LAST", 4);
	look(&h, (char(*)[4])(page + 4092), "RIFF");
	memset(&h, 0, sizeof h);
	memcpy(h.tag, "RIF", 4);
	page[4093] = 0;
	look(&h, (char(*)[4])(page + 4092), "RIFFX");
}
