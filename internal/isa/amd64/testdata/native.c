/*
 * Runs instructions for the tests: one request on standard input is a state
 * and code, one reply on standard output is the state the code leads to.
 *
 * The code runs in a child under ptrace, so that every register, the vector
 * state and every fault can be set and seen. The memory is shared with it.
 *
 * Arguments: regions of memory as KIND:ADDRESS:SIZE in hexadecimal.
 *   x  code: full of int3 except for the pieces of a request
 *   d  data: its contents are part of requests and replies
 *
 * First it says: u64 size of the vector state, then the state a process
 * starts with. A request: u64 registers[27], vector state, all data, u64
 * number of code pieces, and for each: u64 address, u64 length, bytes.
 * A reply: u64 signal, u64 si_code, u64 si_addr, registers, vector state, data.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAXREGIONS 16
#define PATIENCE 20 /* seconds that one request may take */

static struct region { char kind; char *at; size_t size; } regions[MAXREGIONS];
static int nregions;
static pid_t child;

static void die(const char *what) { perror(what); if (child > 0) kill(child, SIGKILL); exit(1); }

static void in(void *p, size_t n)
{
	if (fread(p, 1, n, stdin) != n) {
		if (child > 0) kill(child, SIGKILL);
		exit(0); /* the tests are done */
	}
}

static void out(const void *p, size_t n) { if (fwrite(p, 1, n, stdout) != n) die("write"); }

static uint64_t in64(void) { uint64_t v; in(&v, sizeof v); return v; }
static void out64(uint64_t v) { out(&v, sizeof v); }

static void map(const char *arg)
{
	struct region *r = &regions[nregions++];
	unsigned long at, size;
	if (nregions > MAXREGIONS || sscanf(arg, "%c:%lx:%lx", &r->kind, &at, &size) != 3) die(arg);
	int prot = PROT_READ | PROT_WRITE | (r->kind == 'x' ? PROT_EXEC : 0);
	r->size = size;
	r->at = mmap((void *)at, size, prot, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (r->at != (void *)at) die("mmap");
}

static void xfer(int request, void *xstate, size_t *size)
{
	struct iovec v = { xstate, *size };
	if (ptrace(request, child, NT_X86_XSTATE, &v)) die("regset");
	*size = v.iov_len;
}

static void serve(char *xstate, size_t xsize)
{
	struct user_regs_struct regs;
	siginfo_t si;
	int status;

	in(&regs, sizeof regs);
	in(xstate, xsize);
	for (int i = 0; i < nregions; i++)
		if (regions[i].kind == 'd') in(regions[i].at, regions[i].size);
		else memset(regions[i].at, 0xcc, regions[i].size);
	for (uint64_t n = in64(); n; n--) {
		uint64_t at = in64(), size = in64();
		in((void *)at, size);
	}
	if (ptrace(PTRACE_SETREGS, child, 0, &regs)) die("SETREGS");
	xfer(PTRACE_SETREGSET, xstate, &xsize);
	alarm(PATIENCE);
	if (ptrace(PTRACE_CONT, child, 0, 0)) die("CONT");
	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) die("the child is gone");
	alarm(0);
	if (ptrace(PTRACE_GETSIGINFO, child, 0, &si)) die("GETSIGINFO");
	if (ptrace(PTRACE_GETREGS, child, 0, &regs)) die("GETREGS");
	xfer(PTRACE_GETREGSET, xstate, &xsize);
	out64(WSTOPSIG(status));
	out64(si.si_code);
	out64((uint64_t)si.si_addr);
	out(&regs, sizeof regs);
	out(xstate, xsize);
	for (int i = 0; i < nregions; i++)
		if (regions[i].kind == 'd') out(regions[i].at, regions[i].size);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static char xstate[1 << 16];
	size_t xsize = sizeof xstate;

	for (int i = 1; i < argc; i++) map(argv[i]);
	child = fork();
	if (child < 0) die("fork");
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(1);
	}
	if (waitpid(child, NULL, 0) != child) die("waitpid");
	if (ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL)) die("SETOPTIONS");
	xfer(PTRACE_GETREGSET, xstate, &xsize);
	out64(xsize);
	out(xstate, xsize);
	fflush(stdout);
	for (;;) serve(xstate, xsize);
}
