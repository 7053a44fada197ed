package trace

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/spec"
	"kprobe/symbol"
)

// conventional is arguments with $argN as the function has them that is probed: what a definition says of them is
// of C's functions. Those of Go's come in other registers; those of some languages, in registers that are not known here.
func (t *traced) conventional(args []spec.Arg, at symbol.Loc) ([]spec.Arg, error) {
	a := t.tr.s.Arch()
	if !readArgs(args) || len(a.Args) == 0 || at.Passing() == symbol.ByC {
		return args, nil
	}
	args = slices.Clone(args)
	for i := range args {
		f, err := args[i].Fetch.Rewritten(func(f *spec.Fetch) error {
			if f.Op != spec.ArgN || f.Name != "" {
				return nil
			}
			passing := at.Passing()
			switch why := passing.Refusal(); {
			case passing == symbol.OnGoStack:
				return fmt.Errorf("%s, from +8(%%%s) on", why, a.RegName(a.SP))
			case why != "":
				return errors.New(why)
			case a.GoArgs == nil:
				return fmt.Errorf("how Go passes arguments on %s is not known", a.Name)
			case f.N > int64(len(a.GoArgs)):
				return fmt.Errorf("a function of Go has %d registers for arguments", len(a.GoArgs))
			}
			f.Name = a.RegName(a.GoArgs[f.N-1])
			return nil
		})
		if err != nil {
			return nil, t.spec.ErrorAt(spec.BadArgNum, spec.PartFetch(i), err)
		}
		args[i].Fetch = *f
	}
	return args, nil
}
