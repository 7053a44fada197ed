// Loads and unloads a library on command.
//
//	dl LIBRARY
//
// A round's line is "open" ("opened"), "call N" ("called N RESULT"), "close"
// ("closed"), or "cycle N": open, call and close, N times ("cycled N SUM").
#include "prog.h"
#include <dlfcn.h>

static void *lib;

PROBED int dl_open(const char *path)
{
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		printf("FAIL %s\n", dlerror());
	return lib != NULL;
}

PROBED int dl_call(int a)
{
	int (*f)(int) = lib ? (int (*)(int))dlsym(lib, "dlib_call") : NULL;

	return f ? f(a) : -1;
}

PROBED int dl_close(void)
{
	int ok = lib && dlclose(lib) == 0;

	lib = NULL;
	return ok;
}

int main(int argc, char **argv)
{
	long n = 0;

	if (argc < 2)
		return 2;
	while (next_round(&n)) {
		int times;

		if (!strcmp(command, "open")) {
			CHECK(dl_open(argv[1]));
			puts("opened");
		} else if (sscanf(command, "call %d", &times) == 1) {
			int got = dl_call(times);

			CHECK(got == times * 2 + 101);
			printf("called %d %d\n", times, got);
		} else if (!strcmp(command, "close")) {
			CHECK(dl_close());
			puts("closed");
		} else if (sscanf(command, "cycle %d", &times) == 1) {
			long sum = 0;

			for (int i = 0; i < times; i++) {
				CHECK(dl_open(argv[1]));
				sum += dl_call(i);
				CHECK(dl_close());
			}
			printf("cycled %d %ld\n", times, sum);
		} else {
			CHECK(!"a known command");
		}
	}
	return failures != 0;
}
