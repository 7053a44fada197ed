// The library that dl.c loads and unloads.
int dlib_state = 100;

__attribute__((noinline)) int dlib_inner(int a) { return a * 2 + dlib_state; }
int dlib_call(int a) { return dlib_inner(a) + 1; }
