package event

import (
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"

	"kprobe/spec"
)

// wide puts the halves of a number of more than 8 bytes together. A half that has no value tells
// why, for both.
func wide(low, high *Value) Value {
	for _, half := range []*Value{low, high} {
		if half.Fault || half.Base == spec.String {
			v := *half
			v.Name = ""
			return v
		}
	}
	v := Value{Size: 16, Bits: low.Bits, High: high.Bits}
	switch strings.TrimPrefix(low.Name, spec.PartLow) {
	case spec.WideSigned:
		v.Base = spec.Signed
	case spec.WideX87:
		v.Base, v.Size = spec.Float, 10
	case spec.WideQuad:
		v.Base = spec.Float
	}
	return v
}

// appendWide writes a number of more than 8 bytes.
func (v *Value) appendWide(dst []byte) []byte {
	if v.Base == spec.Float {
		f, ok := v.wideFloat()
		if !ok {
			return append(dst, "NaN"...)
		}
		if n := f.MantExp(nil); !f.IsInf() && (n < -far || n > far) {
			return appendFar(dst, f)
		}
		return f.Append(dst, 'g', -1)
	}
	n := new(big.Int).SetUint64(v.High)
	n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(v.Bits))
	if v.Base == spec.Signed && v.High>>63 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	return n.Append(dst, 10)
}

// wideFloat is the value of a long double; false for what is not a number.
func (v *Value) wideFloat() (*big.Float, bool) {
	const bias, all = 1<<14 - 1, 1<<15 - 1 // of the exponent, in both formats
	var negative bool
	var exp int
	var mant big.Int
	var fraction uint // bits of it
	if v.Size == 10 { // x87's: no bit of the mantissa is hidden
		negative, exp, fraction = v.High>>15&1 != 0, int(v.High&all), 63
		if mant.SetUint64(v.Bits); exp != 0 && v.Bits>>63 == 0 { // the processor takes none of these
			return nil, false
		}
		if exp == all && v.Bits<<1 != 0 {
			return nil, false
		}
	} else { // IEEE 754's binary128
		const above = 48 // bits of the fraction in the upper half
		negative, exp, fraction = v.High>>63 != 0, int(v.High>>above&all), 64+above
		mant.SetUint64(v.High & (1<<above - 1))
		mant.Lsh(&mant, 64).Or(&mant, new(big.Int).SetUint64(v.Bits))
		if exp == all && mant.Sign() != 0 {
			return nil, false
		}
		if exp != 0 {
			mant.SetBit(&mant, int(fraction), 1)
		}
	}
	f := new(big.Float).SetPrec(fraction + 1)
	if exp == 0 {
		f.SetPrec(max(1, uint(mant.BitLen()))) // it has no more digits
	}
	if exp == all {
		return f.SetInf(negative), true
	}
	f.SetInt(&mant)
	f.SetMantExp(f, max(exp, 1)-bias-int(fraction))
	if negative {
		f.Neg(f)
	}
	return f, true
}

// finite tells whether a floating-point number is one that JSON has.
func (v *Value) finite() bool {
	if v.Size > 8 { // the nearest of 8 bytes may be infinite
		f, ok := v.wideFloat()
		return ok && !f.IsInf()
	}
	f := v.Float()
	return !math.IsNaN(f) && !math.IsInf(f, 0)
}

// far is the binary exponent from which on a number is written by appendFar: to write one of 16,000
// takes package big milliseconds.
const far = 400

// appendFar writes a number of a large exponent with the fewest digits that tell it from its
// neighbours. It computes with so many bits more that the last digit is right.
func appendFar(dst []byte, f *big.Float) []byte {
	const bits = 256
	scale := int(float64(f.MantExp(nil)) * math.Log10(2))
	power := powerOf10(max(scale, -scale), bits)
	times, over := (*big.Float).Mul, (*big.Float).Quo
	if scale < 0 {
		times, over = over, times
	}
	near := over(new(big.Float).SetPrec(bits), f, power)
	const most = 36 // digits of 113 bits
	text := ""
	sort.Search(most, func(digits int) bool {
		short := near.Text('e', digits)
		x, _, err := big.ParseFloat(short, 10, bits, big.ToNearestEven)
		if err != nil || times(new(big.Float).SetPrec(f.Prec()), x, power).Cmp(f) != 0 {
			return false
		}
		text = short
		return true
	})
	digits, exp, _ := strings.Cut(text, "e")
	n, _ := strconv.Atoi(exp)
	if n += scale; n >= 0 {
		digits += "e+"
	} else {
		digits += "e"
	}
	return strconv.AppendInt(append(dst, digits...), int64(n), 10)
}

// powerOf10 is 10 to the nth, rounded to so many bits.
func powerOf10(n int, bits uint) *big.Float {
	p, square := big.NewFloat(1).SetPrec(bits), big.NewFloat(10).SetPrec(bits)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			p.Mul(p, square)
		}
		square.Mul(square, square)
	}
	return p
}
