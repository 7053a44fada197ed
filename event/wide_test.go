package event

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"kprobe/spec"
)

// halves are the two arguments that a number of more than 8 bytes is captured as.
func halves(format string, low, high uint64) []Value {
	return []Value{
		{Name: "x" + spec.PartSep + spec.PartLow + format, Size: 8, Bits: low},
		{Name: "x" + spec.PartSep + spec.PartHigh, Size: 8, Bits: high},
	}
}

func TestWide(t *testing.T) {
	const most = 1<<64 - 1
	for _, tt := range []struct {
		format    string
		low, high uint64
		text      string
	}{
		{spec.WideSigned, most, most, "-1"},
		{spec.WideUnsigned, most, most, "340282366920938463463374607431768211455"},
		{spec.WideSigned, 0, 1 << 63, "-170141183460469231731687303715884105728"},
		{spec.WideSigned, most, 1<<63 - 1, "170141183460469231731687303715884105727"},
		{spec.WideUnsigned, 7, 0, "7"},
		{spec.WideSigned, 0, 0, "0"},
		{spec.WideX87, 0, 0, "0"},
		{spec.WideX87, 0, 0x8000, "-0"},
		{spec.WideX87, 0xc000000000000000, 0x3fff, "1.5"},
		{spec.WideX87, 0xaaaaaaaaaaaaaaab, 0xbffd, "-0.33333333333333333334"},
		{spec.WideX87, 1, 0, "4e-4951"}, // the least
		{spec.WideX87, most, 0x7ffe, "1.1897314953572317650e+4932"},
		{spec.WideX87, 1 << 63, 0, "3.3621031431120935063e-4932"}, // a pseudo-denormal is what it would be as a number
		{spec.WideX87, 1 << 63, 0x7fff, "+Inf"},
		{spec.WideX87, 1 << 63, 0xffff, "-Inf"},
		{spec.WideX87, 3 << 62, 0x7fff, "NaN"},
		{spec.WideX87, 1, 0x3fff, "NaN"}, // the processor takes it for none
		{spec.WideX87, 0, 0x7fff, "NaN"},
		{spec.WideQuad, 0, 0x3fff << 48, "1"},
		{spec.WideQuad, 0x5555555555555555, 0xbffd555555555555, "-0.3333333333333333333333333333333333"},
		{spec.WideQuad, 1, 0, "6e-4966"},
		{spec.WideQuad, 0, 0x7fff << 48, "+Inf"},
		{spec.WideQuad, 1, 0xffff << 48, "NaN"},
	} {
		got := Fold(halves(tt.format, tt.low, tt.high))
		if len(got) != 1 || got[0].Name != "x" {
			t.Fatalf("%+v", got)
		}
		text, json := string(got[0].AppendText(nil)), string(got[0].AppendJSON(nil))
		wantJSON := text
		if strings.Contains("NaN +Inf -Inf", tt.text) { // no numbers in JSON
			wantJSON = `"` + text + `"`
		}
		if !sameNumber(text, tt.text) || json != wantJSON {
			t.Errorf("%s %#x %#x is %s, in JSON %s, want %s", tt.format, tt.high, tt.low, text, json, tt.text)
		}
	}
}

// sameNumber lets zeros at the end be.
func sameNumber(a, b string) bool {
	x, _, err1 := big.ParseFloat(a, 10, 200, big.ToNearestEven)
	y, _, err2 := big.ParseFloat(b, 10, 200, big.ToNearestEven)
	return a == b || err1 == nil && err2 == nil && x.Cmp(y) == 0
}

// A half that cannot be read tells so of both; one that is nowhere tells why.
func TestWideUnread(t *testing.T) {
	for k := range 2 {
		parts := halves(spec.WideSigned, 1, 2)
		parts[k].Fault = true
		if got := string(Fold(parts)[0].AppendText(nil)); got != "(fault)" {
			t.Errorf("half %d unread: %s", k, got)
		}
		parts = halves(spec.WideSigned, 1, 2)
		parts[k].Base, parts[k].Text = spec.String, "<optimized out>"
		if got := string(Fold(parts)[0].AppendText(nil)); got != `"<optimized out>"` {
			t.Errorf("half %d nowhere: %s", k, got)
		}
	}
}

// A finite number of 8 bytes keeps its value in the wider formats. The text of a wider number reads back
// as that number.
func TestWideFloats(t *testing.T) {
	r := rand.New(rand.NewPCG(80, 128))
	for range 2000 {
		f := math.Float64frombits(r.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		mant, exp := math.Frexp(math.Abs(f)) // in [1/2, 1)
		sign := uint64(0)
		if math.Signbit(f) {
			sign = 1
		}
		biased := uint64(exp - 1 + 1<<14 - 1)
		m := uint64(mant * (1 << 53)) // 53 bits
		for format, v := range map[string]Value{
			spec.WideX87:  Fold(halves(spec.WideX87, m<<11, sign<<15|biased))[0],
			spec.WideQuad: Fold(halves(spec.WideQuad, m<<60, sign<<63|biased<<48|m&(1<<52-1)>>4))[0],
		} {
			got, ok := v.wideFloat()
			if d, exact := got.Float64(); !ok || d != f || exact != big.Exact || v.Float() != f {
				t.Fatalf("%s of %g is %v", format, f, got)
			}
		}
		for _, v := range []Value{
			Fold(halves(spec.WideX87, r.Uint64()|1<<63, r.Uint64()&0xffff))[0], Fold(halves(spec.WideX87, r.Uint64()>>1, r.Uint64()&0x8000))[0],
			Fold(halves(spec.WideQuad, r.Uint64(), r.Uint64()))[0],
		} {
			want, ok := v.wideFloat()
			if !ok || want.IsInf() {
				continue
			}
			text := string(v.AppendText(nil))
			if got, _, err := big.ParseFloat(text, 10, want.Prec(), big.ToNearestEven); err != nil || got.Cmp(want) != 0 {
				t.Fatalf("%v is printed as %s: %v", want, text, err)
			}
		}
	}
}
