package script_test

import (
	"os"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// Bit-fields have the values that C reads, in memory of the process and in a script's copies, whether debug data tells of them
// or the script declares them: across words of their type, in packed structures, of signed types and enumerations.
func TestBitFields(t *testing.T) {
	tests := []argsTest{
		{`$c = C; printf("%x %x %llx %x %d", $c->a, $c->b, $c->c, $c->d, $c->s); print(($c->e, $c->u, $c->f, $c->whole)); print(*$c); $k = *$c;
			print(($k.a, $k.b, $k.c, $k.d, $k.s, $k.e, $k.u, $k.f));`,
			"abcde 54321 123456789a 2bcdef01 -7(MINUS, LIGHT, true, MINUS)\n" +
				"{ .a = 703710, .b = 344865, .c = 78187493530, .d = 734916353, .s = -7, .e = MINUS, .u = LIGHT, .f = true, .whole = MINUS }\n" +
				"(703710, 344865, 78187493530, 734916353, -7, MINUS, LIGHT, true)"},
		{`$t = T; print(($t->x, $t->y, $t->z, $t->e, $t->v, $t->w, $t->t)); print(*$t); $k = *$t; print(($k.x, $k.y, $k.z, $k.e, $k.v, $k.w, $k.t));`,
			"(5, 715827883, -123456789, MINUS, 2223857479997207056, -1311768467463790320, 81)\n" +
				"{ .x = 5, .y = 715827883, .z = -123456789, .e = MINUS, .v = 2223857479997207056, .w = -1311768467463790320, .t = 81 }\n" +
				"(5, 715827883, -123456789, MINUS, 2223857479997207056, -1311768467463790320, 81)"},
		{`$w = W; print(*$w); print(($w->a, $w->b, $w->q, $w->r)); $p = P; print(($p->c, $p->n, $p->s, $p->e.n));`,
			"{ .a = -200, .b = 255, .q = -4000000000, .r = 549755813887, .k = 107, .l = 108 }\n(-200, 255, -4000000000, 549755813887)\n(99, -5, -6, -3)"},
		{`$t = T; @[$t->z, $t->e] = C->s; @whole[*$t] = W->q; if (C->e == MINUS && C->e < 0 && T->z < 0 && C->b > C->s) { @yes[C->e + 1, (int64)C->whole] = (enum sign)C->s }`,
			"\n\n@[-123456789, MINUS]: -7\n@whole[{ .x = 5, .y = 715827883, .z = -123456789, .e = MINUS, .v = 2223857479997207056, .w = -1311768467463790320, .t = 81 }]: -4000000000\n@yes[-1, -2]: -7"},
		{`print((sizeof(struct crossing), sizeof(struct tight), sizeof(struct wide), sizeof(union either), sizeof(struct placed), sizeof(enum sign)));`, "(32, 25, 16, 4, 32, 4)"},
	}
	text, err := os.ReadFile("../internal/testprog/testdata/bits.c")
	ok(t, err)
	declared := strings.Split(string(text), "// ----\n")[1]
	told := strings.NewReplacer("C;", "args.c;", "C->", "args.c->", "T;", "args.t;", "T->", "args.t->", "W;", "args.w;", "W->", "args.w->", "P;", "args.p;")
	cast := strings.NewReplacer("C;", "(struct crossing *)arg0;", "C->", "((struct crossing *)arg0)->", "T;", "(struct tight *)arg1;", "T->", "((struct tight *)arg1)->",
		"W;", "(struct wide *)arg2;", "W->", "((struct wide *)arg2)->", "P;", "(struct placed *)arg3;")
	for _, flags := range []string{"-O0", "-O2", "-gdwarf-3", "-g0"} {
		var all []argsTest
		for _, tt := range tests {
			probe := "uprobe:%:bits_all { " + told.Replace(tt.script) + " }"
			if flags == "-g0" {
				probe = declared + "uprobe:%:bits_all { " + cast.Replace(tt.script) + " }"
			}
			all = append(all, argsTest{probe, tt.want})
		}
		checkArgs(t, testprog.Build(t, "bits", flags), all)
	}
}
