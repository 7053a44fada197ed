package roles

import (
	"errors"
	"syscall"

	"kprobe/internal/image"
	"kprobe/internal/links"
	"kprobe/symbol"
)

// Batch is the plan of one registration.
type Batch struct {
	*links.Batch
	Watches []*Probe // of data
	Wait    []*Probe // whose file is not mapped yet
}

// Batch is one with nothing in it.
func (h *Home) Batch() *Batch { return &Batch{Batch: h.Links.Batch()} }

// Mark is a state of a batch to go back to.
type Mark struct {
	links         links.Mark
	watches, wait int
}

// Mark is the batch's state now.
func (b *Batch) Mark() Mark { return Mark{b.Batch.Mark(), len(b.Watches), len(b.Wait)} }

// Back takes out of the batch all probes that have come in since a mark.
func (b *Batch) Back(m Mark) {
	b.Batch.Back(m.links)
	b.Watches, b.Wait = b.Watches[:m.watches], b.Wait[:m.wait]
}

// Prepare takes one probe as far as its plan, or lets it wait for its file.
func (b *Batch) Prepare(p *Probe) error {
	loc, err := p.As().Find()
	if err != nil {
		var absent *symbol.NoModuleError
		if p.Lasts() && (errors.As(err, &absent) || p.Patient && (errors.Is(err, syscall.ENOENT) || errors.Is(err, image.ErrUnbound))) {
			b.Wait = append(b.Wait, p)
			return nil
		}
		return err
	}
	if err := p.As().Fits(b, loc); err != nil {
		return err
	}
	return p.As().Join(b, loc)
}
