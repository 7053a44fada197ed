package parts

import "kprobe/internal/change"

// State is what a change sets, and sets back where it fails.
type State struct {
	change.Nothing
	What     string
	Set, Was func() // Was: nil where nothing after it can fail
}

func (p *State) Commit() error { p.Set(); return nil }

func (p *State) Undo() {
	if p.Was != nil {
		p.Was()
	}
}

func (p *State) Lines() []string { return []string{p.What} }

// Final is what follows from a change that is complete, in the stop still.
type Final struct {
	change.Nothing
	Do func()
}

func (p Final) Adopt() { p.Do() }
