package builtin

import (
	"kprobe/bpf"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// What maps gather.

func is(t *types.Type) func(checker, *syntax.Call) *types.Type {
	return func(checker, *syntax.Call) *types.Type { return t }
}

func gathers(kind types.Kind) func(checker, *syntax.Call) *types.Type {
	return func(c checker, x *syntax.Call) *types.Type {
		t := c.Number(x.Args[0], x.Name+"()")
		size := 16
		if kind == types.Sum {
			size = 8
		}
		return &types.Type{Kind: kind, Size: size, Signed: t.Kind != types.Int || t.Signed}
	}
}

func (c checker) hist(x *syntax.Call) *types.Type {
	c.Number(x.Args[0], "hist()")
	bits := uint64(0)
	if len(x.Args) == 2 {
		n, ok := c.Constant(x.Args[1])
		if !ok || n > 5 {
			if ok {
				c.Errorf(x, "hist: bits %d must be 0..5", int64(n))
			} else {
				c.Errorf(x, "hist() expects a int literal (%s provided)", c.Expr(x.Args[1]).Family())
			}
			return nil
		}
		bits = n
	}
	return types.NewHist(int(bits))
}

func (c checker) lhist(x *syntax.Call) *types.Type {
	c.Number(x.Args[0], "lhist()")
	var n [3]int64
	for i, a := range x.Args[1:] {
		c.Expr(a)
		v, ok := c.natural(x, a, []string{"min", "max", "step"}[i])
		if !ok {
			return nil
		}
		n[i] = int64(v)
	}
	switch {
	case n[2] <= 0:
		c.Errorf(x, "lhist() step must be >= 1 (%d provided)", n[2])
	case n[0] > n[1]:
		c.Errorf(x, "lhist() min must be less than max (provided min %d and max %d)", n[0], n[1])
	case n[1]-n[0] < n[2]:
		c.Errorf(x, "lhist() step is too large for the given range (provided step %d for range %d)", n[2], n[1]-n[0])
	case (n[1]-n[0])/n[2] > 1000:
		c.Errorf(x, "lhist() too many buckets, must be <= 1000 (would need %d)", (n[1]-n[0])/n[2])
	default:
		return types.NewLHist(n[0], n[1], n[2])
	}
	return nil
}

// tseries is tseries(n, interval_ns, num_intervals[, how]).
func (c checker) tseries(x *syntax.Call) *types.Type {
	c.Stable(x, "unstable_tseries")
	t := c.Number(x.Args[0], "tseries()")
	step, ok1 := c.natural(x, x.Args[1], "interval_ns")
	n, ok2 := c.natural(x, x.Args[2], "num_intervals")
	if !ok1 || !ok2 {
		return nil
	}
	how := ""
	if len(x.Args) == 4 {
		s, ok := c.literal(x, 3)
		if !ok {
			return nil
		}
		switch how = s; how {
		case "avg", "max", "min", "sum":
		default:
			c.Errorf(x, "tseries() expects one of the following aggregation functions: avg, max, min, sum (\"%s\" provided)", how)
			return nil
		}
	}
	switch {
	case step < 1:
		c.Errorf(x, "tseries() interval_ns must be >= 1 (%d provided)", step)
	case n < 1:
		c.Errorf(x, "tseries() num_intervals must be >= 1 (%d provided)", n)
	case n > 1000000:
		c.Errorf(x, "tseries() num_intervals must be < 1000000 (%d provided)", n)
	default:
		series := types.NewTSeries(int(n), int64(step), how, t.Kind != types.Int || t.Signed)
		if series.Size <= bpf.MaxValue {
			return series
		}
		c.Errorf(x, "tseries() of %d intervals takes %d bytes for each key: a map has room for %d", n, series.Size, bpf.MaxValue)
	}
	return nil
}
