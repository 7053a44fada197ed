// Code of x86 that is not called: jumped to, with a word on top of the stack that is no return address and that it
// reads. And a function that is called in every way that a call is written, from code that is made while the program
// runs, by a signal, and by a function whose call is among its first bytes. A round with count N does all of
// it N times, and prints "landed L, changed W, counted C, handled H", W of the words.
#include "prog.h"
#include <signal.h>
#include <sys/mman.h>

#if __SIZEOF_POINTER__ == 8
#define AX "%rax"
#define BX "%rbx"
#define SP "%rsp"
#define RETURN_COLUMN "16"
#define LOAD_FN "mov %rdi, %rax\n"
#define LOAD_WORD "mov %rsi, %rcx\n"
#define CX "%rcx"
#define HERE "lea 1f(%rip), %rbx\n"
#define WORD_SIZE "8"
#else
#define AX "%eax"
#define BX "%ebx"
#define SP "%esp"
#define RETURN_COLUMN "8"
#define LOAD_FN "mov 8(%esp), %eax\n"
#define LOAD_WORD "mov 12(%esp), %ecx\n"
#define CX "%ecx"
#define HERE "call 2f\n2: pop %ebx\nadd $(1f - 2b), %ebx\n"
#define WORD_SIZE "4"
#endif

#define FUNCTION(name) ".globl " name "\n.type " name ", @function\n.p2align 4\n" name ":\n"
#define END(name) ".size " name ", . - " name "\n"

// enter_with jumps to a function that goes on at BX, with a word on top of the stack, and gives that word's answer.
long enter_with(void (*fn)(void), unsigned long word);
void landed(void);
void begins(void);
void counted_ways(void (*fn)(void));
void called_first(void);

#define LANDS                                        \
	"pop " AX "\npush " AX "\n" /* the word */   \
	"lea 1(" AX "), " AX "\n"                    \
	"nop\nnop\n"                                 \
	"push " BX "\nret\n"

__asm__(".text\n" FUNCTION("enter_with")
	"push " BX "\n" LOAD_FN LOAD_WORD HERE
	"push " CX "\n"
	"jmp *" AX "\n"
	"1: add $" WORD_SIZE ", " SP "\n"
	"pop " BX "\n"
	"ret\n" END("enter_with")
	FUNCTION("landed") LANDS END("landed")
	FUNCTION("begins") ".cfi_startproc\n.cfi_undefined " RETURN_COLUMN "\n" LANDS ".cfi_endproc\n" END("begins")
	// Every form of an indirect call: by a register, and by memory without and with a displacement of one and
	// four bytes, with an index and without.
	FUNCTION("counted_ways")
	"push " BX "\n"
#if __SIZEOF_POINTER__ == 8
	"sub $32, %rsp\n"
	"mov %rdi, %rbx\n"
	"mov %rbx, (%rsp)\nmov %rbx, 8(%rsp)\n"
	"call *%rbx\n"
	"mov %rbx, %r11\ncall *%r11\n"
	"mov %rsp, %rax\ncall *(%rax)\n"
	"call *(%rsp)\n"
	"mov %rsp, %rax\ncall *8(%rax)\n"
	"call *8(%rsp)\n"
	"mov %rsp, %rax\nsub $1000, %rax\ncall *1000(%rax)\n"
	"mov $1, %eax\ncall *(%rsp, %rax, 8)\n"
	"mov $-1000, %rax\ncall *1000(%rsp, %rax)\n"
	"notrack call *%rbx\n"
	"call counted\n"
	"add $32, %rsp\n"
#else
	"sub $24, %esp\n"
	"mov 32(%esp), %ebx\n"
	"mov %ebx, (%esp)\nmov %ebx, 4(%esp)\n"
	"call *%ebx\n"
	"mov %ebx, %ecx\ncall *%ecx\n"
	"mov %esp, %eax\ncall *(%eax)\n"
	"call *(%esp)\n"
	"mov %esp, %eax\ncall *4(%eax)\n"
	"call *4(%esp)\n"
	"mov %esp, %eax\nsub $1000, %eax\ncall *1000(%eax)\n"
	"mov $1, %eax\ncall *(%esp, %eax, 4)\n"
	"mov $-1000, %eax\ncall *1000(%esp, %eax)\n"
	"notrack call *%ebx\n"
	"call counted\n"
	"add $24, %esp\n"
#endif
	"pop " BX "\n"
	"ret\n" END("counted_ways")
	// A jump over its beginning takes a part of its call.
	FUNCTION("called_first")
	"push " BX "\n"
	"call counted\n"
	"pop " BX "\n"
	"ret\n" END("called_first"));

static volatile long landings, changed, counts, signals;

PROBED void counted(void) { counts++; }

PROBED void handled(int sig)
{
	(void)sig;
	signals++;
}

// thunk calls what it is given by code in memory that is no file's.
static void (*thunk)(void (*)(void));

static void make_thunk(void)
{
#if __SIZEOF_POINTER__ == 8
	static const unsigned char code[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
#else
	static const unsigned char code[] = {0x83, 0xec, 12, 0xff, 0x54, 0x24, 16, 0x83, 0xc4, 12, 0xc3};
#endif
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	thunk = (void (*)(void (*)(void)))memcpy(page, code, sizeof code);
}

static void land(unsigned long word)
{
	changed += enter_with(landed, word) != (long)(word + 1);
	changed += enter_with(begins, word) != (long)(word + 1);
	landings++;
}

int main(void)
{
	long n = 1;
	static long data[4] = {0x11223344, 0x55667788, -1, -1};
	char *gone;

	make_thunk();
	gone = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(gone != MAP_FAILED && munmap(gone, 4096) == 0);
	signal(SIGUSR1, handled);
	while (next_round(&n)) {
		landings = changed = counts = signals = 0;
		for (long i = 0; i < n; i++) {
			land(0);
			land(1);
			land(4711);
			land(-1UL);
			land((unsigned long)&data[2]);
			land((unsigned long)&n);
			land((unsigned long)gone + 100);
#if __SIZEOF_POINTER__ == 8
			land(1UL << 62);
#endif
			counted_ways(counted);
			called_first();
			thunk(counted);
			raise(SIGUSR1);
		}
		printf("landed %ld, changed %ld, counted %ld, handled %ld\n", landings, changed, counts, signals);
	}
	return failures != 0;
}
