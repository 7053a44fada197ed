// Changes how its own code is mapped, on command.
//
//	remaps
//
// "again" maps the page of its file that holds remaps_again once more, somewhere else,
// and calls that function there from then on. "move" puts anonymous memory with the
// same code in the place of the page that holds remaps_moved, as programs do that want
// their text on huge pages, and "other" overwrites the first bytes of remaps_other there.
// "call" calls all of them ("called A B C").
#define _GNU_SOURCE
#include "prog.h"
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

#define PAGED(name) PROBED __attribute__((section(".text." name), aligned(4096)))

PAGED("again") int remaps_again(int a) { BARRIER(); return a + 1; }
PAGED("moved") int remaps_moved(int a) { BARRIER(); return a + 2; }
__attribute__((section(".text.moved"))) PROBED int remaps_other(int a) { BARRIER(); return a + 3; }
PAGED("after") int remaps_after(int a) { BARRIER(); return a + 4; }

static int (*volatile again)(int) = remaps_again;
static int (*volatile moved)(int) = remaps_moved;
static int (*volatile other)(int) = remaps_other;

static off_t offset_of(void *page)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	off_t found = -1;

	while (maps && fgets(line, sizeof line, maps)) {
		unsigned long start, end, off;

		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &off) == 3 && (uintptr_t)page >= start && (uintptr_t)page < end)
			found = off + ((uintptr_t)page - start);
	}
	if (maps)
		fclose(maps);
	return found;
}

static void map_again(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, offset_of((void *)remaps_again));

	CHECK(p != MAP_FAILED);
	close(fd);
	again = (int (*)(int))p;
	printf("again %p\n", p);
}

static void move(void)
{
	void *page = (void *)((uintptr_t)remaps_moved & -(uintptr_t)PAGE);
	void *copy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(copy != MAP_FAILED);
	memcpy(copy, page, PAGE);
	CHECK(mprotect(copy, PAGE, PROT_READ | PROT_EXEC) == 0);
	CHECK(mremap(copy, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page);
	puts("moved");
}

static void overwrite(void)
{
	void *page = (void *)((uintptr_t)remaps_moved & -(uintptr_t)PAGE);
	static const unsigned char nine[] = {0xb8, 9, 0, 0, 0, 0xc3}; // mov $9, %eax; ret

	CHECK(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
	memcpy((void *)remaps_other, nine, sizeof nine);
	CHECK(mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0);
	puts("overwritten");
}

int main(void)
{
	long n = 0;

	while (next_round(&n)) {
		if (!strcmp(command, "again"))
			map_again();
		else if (!strcmp(command, "move"))
			move();
		else if (!strcmp(command, "other"))
			overwrite();
		else
			printf("called %d %d %d %d\n", again(0), moved(0), other(0), remaps_after(0));
	}
	return failures != 0;
}
