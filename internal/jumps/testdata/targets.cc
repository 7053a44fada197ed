// Code that is led to by data: jump tables, the labels of a computed goto, and
// the landing pads of exceptions.

extern "C" {
int sink;
void may_throw(int);

// Two tables, one of them in a loop.
int tables(int x, int *p, int n) {
	for (int i = 0; i < n; i++) {
		switch (p[i] & 15) {
		case 0: x += p[1]; break;
		case 1: sink = 3; break;
		case 2: p[4] = x * x; break;
		case 3: x *= 7; break;
		case 4: p[2]++; break;
		case 5: p[0] ^= 9; continue;
		case 6: x = p[3] / (x | 1); break;
		case 9: x -= sink; break;
		case 11: return i;
		}
	}
	switch (x) {
	case 100: return p[1];
	case 101: sink = 4; break;
	case 102: return p[4] - 1;
	case 103: return x * n;
	case 104: p[2]--; break;
	case 105: p[0] |= 1; break;
	}
	return x;
}

// An interpreter's dispatch.
int computed(const unsigned char *code, int acc) {
	static const void *const ops[] = {&&inc, &&dec, &&twice, &&half, &&store, &&stop};
	goto *ops[*code++];
inc:
	acc++;
	goto *ops[*code++];
dec:
	acc--;
	goto *ops[*code++];
twice:
	acc *= 2;
	goto *ops[*code++];
half:
	acc /= 2;
	goto *ops[*code++];
store:
	sink = acc;
	goto *ops[*code++];
stop:
	return acc;
}
}

struct guard {
	~guard() { sink = sink + 1; }
};

int catches(int x) {
	guard one;
	try {
		may_throw(x);
		guard two;
		may_throw(x + 1);
	} catch (int e) {
		return e;
	} catch (...) {
		may_throw(2);
	}
	return x;
}
