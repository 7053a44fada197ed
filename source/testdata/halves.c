/* Functions that an optimizer takes apart, each with a counter of its calls: into a beginning, which it copies to the
   callers, and a rest; into code that another branch ends in, too. */
#include <stdio.h>
#include <stdlib.h>

struct node {
	struct node *next, *child;
	int kind;
	long n;
};

static volatile long calls[5];
static volatile long sink;

#define OUTLINE __attribute__((noinline))

/* Nothing of it is left where it is copied. */
static inline long same(long v)
{
	return v;
}

/* Split: the rest is code of its own. */
static long split(struct node *p, long by)
{
	calls[0]++;
	if (!p)
		return 0;
	for (int i = 0; i < 3; i++) {
		sink += p->n * by;
		printf("%s", sink == 42 ? "-" : "");
	}
	if (sink & 1)
		puts("");
	return same(p->n) ^ same(by);
}

/* Split, and joined again where it has code of its own. */
long joined(struct node *p)
{
	calls[1]++;
	if (p->kind < 2)
		return p->n;
	fputs(p->n > 6 ? "" : p->n == 3 ? "+" : "", stdout);
	sink += p->kind;
	return sink;
}

/* Recursive, and copied to itself for that. */
OUTLINE static long deep(struct node *p, int level)
{
	calls[2]++;
	sink += level;
	if (!p || level > 30)
		return 0;
	return deep(p->next, level + 1) % 1000 * 3 ^ deep(p->child, level + 2);
}

/* Called in two branches that end in the same code. */
static void shut(struct node *p)
{
	calls[3]++;
	sink = p->n;
	free(p);
}

OUTLINE static void shutAll(struct node *p)
{
	while (p) {
		struct node *next = p->next, *child = p->child;

		if (p->kind == 1) {
			if (child)
				shut(child);
		} else if (p->kind == 2) {
			if (child)
				shut(child);
		}
		free(p);
		p = next;
	}
}

/* Its parameter is another thing when it begins than behind its first statement, which is no code. */
OUTLINE static long last(const long *end)
{
	end -= 3;
	return end[0] + end[2] * sink;
}

OUTLINE static long one(struct node *p) { return split(p, 3) + split(p->next, 4); }
OUTLINE static long two(struct node *p) { return split(p->child, 5) - joined(p); }
OUTLINE static long three(struct node *p) { return p->child ? joined(p->child) * split(p, 6) : split(p->next, 1); }

int main(int argc, char **argv)
{
	long n = argc > 1 ? atoi(argv[1]) : 20, sum = 0;
	struct node *list = NULL;

	for (long i = 0; i < n; i++) {
		struct node *p = calloc(1, sizeof *p);

		*p = (struct node){.next = list, .kind = i % 3, .n = i};
		if (i % 2)
			*(p->child = calloc(1, sizeof *p)) = (struct node){.kind = i % 4, .n = -i};
		list = p;
	}
	for (struct node *p = list; p; p = p->next)
		sum += one(p) + two(p) + three(p);
	sum += deep(list, 0) + last((long[]){n, 2, 3} + 3);
	shutAll(list);
	printf("\nsum %ld\n", sum);
	for (int i = 0; i < 4; i++)
		printf("%s %ld\n", (const char *[]){"split", "joined", "deep", "shut"}[i], calls[i]);
	return 0;
}
