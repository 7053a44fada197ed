package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// rustHead has types that functions return, how a value of each is made of random bits, and how kprobe prints it.
const rustHead = `#![allow(improper_ctypes_definitions, dead_code)]
use std::hint::black_box;
trait Value { fn make(r: &mut u64) -> Self; fn show(&self) -> String; }
fn bits(r: &mut u64) -> u64 { *r ^= *r << 13; *r ^= *r >> 7; *r ^= *r << 17; *r }
macro_rules! integers { ($($t:ty),*) => { $(impl Value for $t {
	fn make(r: &mut u64) -> Self { (bits(r) as u128 * 0x1000000000000000f) as $t }
	fn show(&self) -> String { self.to_string() }
})* } }
integers!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize);
macro_rules! floats { ($($t:ty),*) => { $(impl Value for $t {
	fn make(r: &mut u64) -> Self { (bits(r) % 1000) as $t - 499.5 }
	fn show(&self) -> String { self.to_string() }
})* } }
floats!(f32, f64);
impl Value for bool { fn make(r: &mut u64) -> Self { bits(r) & 4 != 0 } fn show(&self) -> String { (*self as u8).to_string() } }
impl Value for char { fn make(r: &mut u64) -> Self { char::from_u32(bits(r) as u32 % 50000).unwrap() } fn show(&self) -> String { (*self as u32).to_string() } }
impl Value for &'static str { fn make(r: &mut u64) -> Self { &"abcdefgh"[bits(r) as usize % 4..][..4] } fn show(&self) -> String { format!("{self:?}") } }
impl Value for String { fn make(r: &mut u64) -> Self { (bits(r) % 99).to_string() } fn show(&self) -> String { format!("{self:?}") } }
impl Value for &'static [u16] { fn make(r: &mut u64) -> Self { &[1, 2, 3, 4, 5][bits(r) as usize % 3..][..2] } fn show(&self) -> String { format!("{{{},{}}}", self[0], self[1]) } }
impl<A: Value, B: Value> Value for (A, B) {
	fn make(r: &mut u64) -> Self { (A::make(r), B::make(r)) }
	fn show(&self) -> String { format!("{{{},{}}}", self.0.show(), self.1.show()) }
}
impl<A: Value, B: Value, C: Value> Value for (A, B, C) {
	fn make(r: &mut u64) -> Self { (A::make(r), B::make(r), C::make(r)) }
	fn show(&self) -> String { format!("{{{},{},{}}}", self.0.show(), self.1.show(), self.2.show()) }
}
impl<A: Value, const N: usize> Value for [A; N] {
	fn make(r: &mut u64) -> Self { std::array::from_fn(|_| A::make(r)) }
	fn show(&self) -> String { format!("{{{}}}", self.iter().map(|v| v.show()).collect::<Vec<_>>().join(",")) }
}
impl<A: Value> Value for Option<A> {
	fn make(r: &mut u64) -> Self { if bits(r) & 8 == 0 { None } else { Some(A::make(r)) } }
	fn show(&self) -> String { match self { None => "None".into(), Some(v) => format!("Some{{{}}}", v.show()) } }
}
impl<A: Value, B: Value> Value for Result<A, B> {
	fn make(r: &mut u64) -> Self { if bits(r) & 8 == 0 { Err(B::make(r)) } else { Ok(A::make(r)) } }
	fn show(&self) -> String { match self { Err(v) => format!("Err{{{}}}", v.show()), Ok(v) => format!("Ok{{{}}}", v.show()) } }
}
macro_rules! structs { ($($(#[$a:meta])* $n:ident { $($f:ident: $t:ty),* })*) => { $($(#[$a])* struct $n { $($f: $t),* } impl Value for $n {
	fn make(r: &mut u64) -> Self { $n { $($f: <$t>::make(r)),* } }
	fn show(&self) -> String { let mut s = vec![]; $(let v = self.$f; s.push(format!("{}={}", stringify!($f), v.show()));)* format!("{{{}}}", s.join(",")) }
})* } }
structs! {
	Point { x: i32, y: i32 }
	Number { n: u32 }
	Meters { m: f64 }
	Mixed { a: u64, b: u8 }
	Floats { a: f32, b: f32, c: f32 }
	#[repr(C)] CNumber { n: u32 }
	#[repr(C)] CMeters { m: f32 }
	#[repr(C)] CPair { a: u32, b: u32 }
	#[repr(C)] CFloat { a: f64, b: u32 }
	#[repr(C, packed)] Packed { a: u8, b: u32 }
	#[repr(packed)] Tight { a: u32, b: u32 }
	#[repr(align(16))] Far { a: u64 }
	#[repr(align(8))] Wide { a: u16, b: u16 }
	Large { a: u64, b: u32, c: f64 }
}
struct Owner;
enum Shape { Square(u32), Circle(i64), Nothing }
impl Value for Shape {
	fn make(r: &mut u64) -> Self { match bits(r) % 3 { 0 => Shape::Square(u32::make(r)), 1 => Shape::Circle(i64::make(r)), _ => Shape::Nothing } }
	fn show(&self) -> String { match self { Shape::Square(n) => format!("Square{{{n}}}"), Shape::Circle(n) => format!("Circle{{{n}}}"), Shape::Nothing => "Nothing".into() } }
}
enum Small { Byte(u8), Pair(u8, u16), Empty }
impl Value for Small {
	fn make(r: &mut u64) -> Self { match bits(r) % 3 { 0 => Small::Byte(u8::make(r)), 1 => Small::Pair(u8::make(r), u16::make(r)), _ => Small::Empty } }
	fn show(&self) -> String { match self { Small::Byte(n) => format!("Byte{{{n}}}"), Small::Pair(n, m) => format!("Pair{{{n},{m}}}"), Small::Empty => "Empty".into() } }
}
#[repr(u8)] enum Tagged { A(u32), B(u32) }
impl Value for Tagged {
	fn make(r: &mut u64) -> Self { if bits(r) & 2 == 0 { Tagged::A(u32::make(r)) } else { Tagged::B(u32::make(r)) } }
	fn show(&self) -> String { match self { Tagged::A(n) => format!("A{{{n}}}"), Tagged::B(n) => format!("B{{{n}}}") } }
}
#[derive(Debug, Clone, Copy)] enum Plain { One, Two = 7 }
impl Value for Plain { fn make(r: &mut u64) -> Self { if bits(r) & 2 == 0 { Plain::One } else { Plain::Two } } fn show(&self) -> String { format!("{self:?}") } }
`

var (
	rustScalars = strings.Fields("u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize f32 f64 bool char Plain")
	rustStructs = strings.Fields("Point Number Meters Mixed Floats CNumber CMeters CPair CFloat Packed Tight Far Wide Large")
	rustOthers  = []string{"&'static str", "String", "&'static [u16]", "Shape", "Small", "Tagged"}
)

// rustType is a random type of those, in others to some depth.
func rustType(r *rand.Rand, depth int) string {
	of := func() string { return rustType(r, depth-1) }
	switch k := r.IntN(12); {
	case depth == 0 && k < 8, k < 1:
		return rustScalars[r.IntN(len(rustScalars))]
	case depth == 0 && k < 10, k < 3:
		return rustStructs[r.IntN(len(rustStructs))]
	case depth == 0, k < 4:
		return rustOthers[r.IntN(len(rustOthers))]
	case k < 7:
		return fmt.Sprintf("(%s, %s)", of(), of())
	case k < 8:
		return fmt.Sprintf("(%s, %s, %s)", of(), of(), of())
	case k < 10:
		return fmt.Sprintf("Option<%s>", of())
	case k < 11:
		return fmt.Sprintf("Result<%s, %s>", of(), of())
	}
	return fmt.Sprintf("[%s; %d]", of(), 1+r.IntN(4))
}

// rustResults writes a program of n functions of random results, which prints them.
func rustResults(n int, types *[]string) string {
	r := rand.New(rand.NewPCG(uint64(n), 24))
	var b, calls strings.Builder
	b.WriteString(rustHead)
	for f := range n {
		typ := rustType(r, r.IntN(3))
		convention := ""
		if slices.Contains(rustStructs, typ) && r.IntN(2) == 0 {
			convention = `extern "C" `
		}
		*types = append(*types, convention+typ)
		open, of, end := "", "", ""
		if f%3 == 0 { // of these LLVM does not tell what it leaves out
			open, of, end = "impl Owner { ", "Owner::", " }"
		}
		fmt.Fprintf(&b, "%s#[inline(never)] %sfn f%d(r: &mut u64) -> %s { *r += %d; Value::make(r) }%s\n", open, convention, f, typ, f, end)
		fmt.Fprintf(&calls, "\t\tlet v = black_box(%sf%d(black_box(&mut r))); println!(\"f%d {}\", v.show());\n", of, f, f)
	}
	fmt.Fprintf(&b, "fn main() {\n\tlet mut r = 0x9e3779b97f4a7c15u64;\n\tfor _ in 0..4 {\n%s\t}\n}\n", calls.String())
	return b.String()
}

var refusal = regexp.MustCompile(`<.*?>|\(tail call\)`)

// valuesOf gives by function what lines have that a pattern describes.
func valuesOf(pattern, text string) map[string][]string {
	out := map[string][]string{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		out[m[1]] = append(out[m[1]], m[2])
	}
	return out
}

// compareRust compares what kprobe says that such functions return with what the program prints.
func compareRust(t *testing.T, n int, flags ...string) {
	dir := t.TempDir()
	path := filepath.Join(dir, "results")
	var types []string
	testprog.CompileText(t, path, append([]string{"rustc", "-g", "-Awarnings"}, flags...), "results.rs", rustResults(n, &types))
	// In a file of their own: events come between the parts in which the program writes its lines.
	written := filepath.Join(dir, "events")
	res := run(t, "trace", "--no-summary", "-o", written, "r:ev results:results::*f[0-9]* ret=$retval", "--", path)
	events, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	want := valuesOf(`(?m)^(f\d+) (.*)$`, strings.Join(res.Lines, "\n"))
	got := valuesOf(`(?m) ev: \(.* <- results::(?:Owner::)?(f\d+)\) ret=(.*)$`, string(events))
	right, refused := 0, map[string]int{}
	for f, typ := range types {
		name := fmt.Sprint("f", f)
		have, known := got[name], true
		if len(want[name]) != 4 || len(have) != 4 {
			t.Fatalf("%v: %s returns %s: %q, and kprobe says %q\n%.2000v", flags, name, typ, want[name], have, res)
		}
		for i, v := range have {
			switch why := refusal.FindString(v); {
			case v == want[name][i]:
			case why != "":
				known = false
				refused[why]++
			default:
				t.Errorf("%v: %s returns %s: %q, and kprobe says %q", flags, name, typ, want[name], have)
			}
		}
		if known {
			right++
		}
	}
	t.Logf("%v: %d of %d are right; refused values: %v", flags, right, n, refused)
	if right < n/3 {
		t.Errorf("%v: only %d of %d are known", flags, right, n)
	}
}

// TestRustResults holds that what functions of Rust's return is what the program itself prints, or is refused.
func TestRustResults(t *testing.T) {
	if testing.Short() {
		compareRust(t, 60, "-O")
		return
	}
	for _, level := range []string{"0", "1", "2", "3", "s"} {
		compareRust(t, 300, "-Copt-level="+level)
	}
}

// TestSparedResult holds that a result, or a part of one, which no caller uses, and which the compiler has left out, has no value,
// and that those which one caller uses have.
func TestSparedResult(t *testing.T) {
	const text = `#include <stdio.h>
#include <stdlib.h>
struct two { long first, second; };
static long total;
static __attribute__((noinline)) int spared(int n, int *by) { total += *by * n; if (total > 100000) total = 0; return total * 3 + n; }
static __attribute__((noinline)) struct two half(int n, int *by) { total += n; return (struct two){total * 5 + *by, n * 7}; }
static __attribute__((noinline)) struct two whole(int n, int *by) { total += n; return (struct two){*by + n, n * 7}; }
static __attribute__((noinline)) int pointed(int n, int *by) { total += n; return *by * n + 9; }
static __attribute__((noinline)) int another(int n, int *by) { total -= n; return *by; }
static __attribute__((noinline)) void through(int (*f)(int, int *), int n, int *by) { f(n, by); }
static __attribute__((noinline)) int tabled(int n, int *by) { total += n; return *by * n + 7; }
static __attribute__((noinline)) int next(int n, int *by) { total -= n; return *by * n; }
static int (*const table[])(int, int *) = {tabled, next};
static __attribute__((noinline)) int used(int n, int *by) { total += n; return *by * n + 5; }
int main(int argc, char **argv)
{
	int by = argc;
	for (int n = 1; n < 4; n++) {
		spared(n, &by);
		struct two a = half(n, &by), b = whole(n, &by);
		int c = used(n, &by);
		used(n, &by);
		through(argc > 5 ? another : pointed, n, &by);
		table[argc - 1](n, &by);
		printf("%ld %ld %d\n", a.second, b.first + b.second, c);
	}
	return total > 50;
}
`
	const rust = `use std::hint::black_box;
struct Cart { total: u64 }
impl Cart {
	#[inline(never)] fn spared(&mut self, n: u64) -> u64 { self.total += n; black_box(self.total * 3) }
	#[inline(never)] fn used(&mut self, n: u64) -> u64 { self.total += n; black_box(n * 7) }
}
fn main() { let mut c = Cart { total: 0 }; for n in 1..4 { c.spared(n); println!("{}", c.used(n)); } }
`
	known := map[string][]string{"whole": {"{first=2,second=7}", "{first=3,second=14}", "{first=4,second=21}"}, "used": {"6", "6", "7", "7", "8", "8"}, "pointed": {"10", "11", "12"}, "tabled": {"8", "9", "10"}}
	for _, c := range []struct {
		cc         []string
		name, text string
		spared     []string
		known      map[string][]string
	}{
		{[]string{"gcc", "-O2", "-g"}, "spared.c", text, []string{"spared"}, nil}, // by their names, it may have changed the others, too
		{[]string{"clang", "-O2", "-g"}, "spared.c", text, []string{"spared", "half"}, known},
		{[]string{"rustc", "-O", "-g"}, "spared.rs", rust, []string{"spared::Cart::spared"}, map[string][]string{"spared::Cart::used": {"7", "14", "21"}}},
	} {
		path := filepath.Join(t.TempDir(), "spared")
		testprog.CompileText(t, path, c.cc, c.name, c.text)
		for _, name := range c.spared {
			left := 0
			for _, v := range values(run(t, "trace", "--no-summary", fmt.Sprintf("r:ev spared:%s* ret=$retval", name), "--", path).Lines, "ev") {
				if v == `ret="<the compiler has changed the function's parameters or its result>"` || v == `ret="<no caller is seen to use it, and LLVM may have left it out>"` {
					left++
				} else {
					t.Errorf("%v: %s: %s", c.cc, name, v)
				}
			}
			if left != 3 {
				t.Errorf("%v: %s: %d results", c.cc, name, left)
			}
		}
		for name, want := range c.known {
			var cases []string
			for _, v := range want {
				cases = append(cases, "ret="+v)
			}
			hold(t, path, []cValues{{fmt.Sprintf("r:ev spared:%s ret=$retval", name), cases}}, engines(0)[1:])
		}
	}
}
