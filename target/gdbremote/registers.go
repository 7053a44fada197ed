package gdbremote

import (
	"encoding/hex"
	"fmt"
	"strings"

	"kprobe/arch"
	"kprobe/target"
)

// registers are the answer to g, for one thread that stands.
type registers []byte

// choose makes th the thread that further requests mean.
func (t *Target) choose(th target.Thread) error {
	if t.chosen == th {
		return nil
	}
	id, ok := t.ids[th]
	if !ok {
		return target.ErrGone
	}
	if err := t.c.command("Hg" + id); err != nil {
		return err
	}
	t.chosen = th
	clear(t.single)
	return nil
}

// registers asks for a thread's, once each time that it stands.
func (t *Target) registers(th target.Thread) (registers, error) {
	if r, ok := t.regs[th]; ok {
		return r, nil
	}
	r, err := t.ask(th)
	if err == nil {
		t.regs[th] = r
	}
	return r, err
}

// ask asks the stub for them.
func (t *Target) ask(th target.Thread) (registers, error) {
	if err := t.choose(th); err != nil {
		return nil, err
	}
	answer, err := t.c.ask("g")
	if err != nil {
		return nil, err
	}
	return decodeRegisters(answer)
}

// askAll asks for those of several, and leaves the last one chosen.
func (t *Target) askAll(threads []target.Thread) error {
	var requests []string
	for _, th := range threads {
		id, ok := t.ids[th]
		if !ok {
			return target.ErrGone
		}
		requests = append(requests, "Hg"+id, "g")
	}
	t.chosen = 0
	clear(t.single)
	answers, err := t.c.askAll(requests...)
	if err != nil {
		return err
	}
	for i, th := range threads {
		if chosen := answers[2*i]; chosen != "OK" {
			return refused(requests[2*i], chosen)
		}
		if t.regs[th], err = decodeRegisters(answers[2*i+1]); err != nil {
			return err
		}
		t.chosen = th
	}
	return nil
}

func decodeRegisters(answer string) (registers, error) {
	// x stands for a digit that cannot be read: the register is not there just now.
	r, err := hex.DecodeString(strings.ReplaceAll(answer, "x", "0"))
	if err != nil || len(r) == 0 {
		return nil, refused("g", answer)
	}
	return r, nil
}

// Regs reads a thread's registers. A register that the stub does not show is 0.
func (t *Target) Regs(th target.Thread, r *arch.Regs) error {
	return t.still(func() error {
		g, err := t.registers(th)
		if err != nil {
			return err
		}
		*r = arch.Regs{}
		for i, row := range t.row {
			r[i], _ = t.about.get(t.arch, g, row)
		}
		return nil
	})
}

// SetRegs writes those of a thread's registers that are different now.
func (t *Target) SetRegs(th target.Thread, r *arch.Regs) error {
	return t.change(func() error {
		g, err := t.registers(th)
		if err != nil {
			return err
		}
		if err := t.choose(th); err != nil {
			return err
		}
		for i, row := range t.row {
			if old, ok := t.about.get(t.arch, g, row); ok && old != r[i] {
				if err := t.setRegister(g, row, r[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// setRegister writes one of the chosen thread's, and notes it in g.
func (t *Target) setRegister(g registers, row *register, v uint64) error {
	t.about.put(t.arch, g, row, v)
	if !t.has.whole {
		one := g[row.at:][:row.size]
		answer, err := t.c.ask(fmt.Sprintf("P%x=%x", row.number, []byte(one)))
		if err != nil || answer == "OK" {
			return err
		}
		if answer != "" {
			return fmt.Errorf("register %s: %w", row.name, refused("P", answer))
		}
		t.has.whole = true
	}
	return t.c.command("G" + hex.EncodeToString(g))
}

// Register reads a register by the stub's name for it, such as cr3, which only a machine has. A
// register wider than 64 bits gives its low ones.
func (t *Target) Register(th target.Thread, name string) (v uint64, err error) {
	err = t.still(func() error {
		v, err = t.register(th, name)
		return err
	})
	return v, err
}

func (t *Target) register(th target.Thread, name string) (uint64, error) {
	g, err := t.registers(th)
	if err != nil {
		return 0, err
	}
	row := t.about.byName[name]
	if v, ok := t.about.get(t.arch, g, row); ok {
		return v, nil
	}
	if row == nil {
		return 0, fmt.Errorf("the stub shows no register %s", name)
	}
	return t.alone(th, row)
}

// alone asks for a register that the answer to g does not hold: those of the
// system, on arm64 and s390x.
func (t *Target) alone(th target.Thread, row *register) (uint64, error) {
	if err := t.choose(th); err != nil {
		return 0, err
	}
	if v, ok := t.single[row]; ok {
		return v, nil
	}
	answer, err := t.c.ask(fmt.Sprintf("p%x", row.number))
	if err != nil {
		return 0, err
	}
	b, err := hex.DecodeString(answer)
	v, ok := t.about.get(t.arch, b, &register{size: row.size})
	if err != nil || !ok {
		return 0, refused("p, register "+row.name, answer)
	}
	t.single[row] = v
	return v, nil
}
