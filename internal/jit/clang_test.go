package jit

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/verify"
	"kprobe/internal/testprog"
)

// clang's programs: package bpf's example programs, in a row, each with the maps as the one before
// has left them.
func TestClang(t *testing.T) {
	m := harness(t)
	files, err := filepath.Glob("../../bpf/testdata/*.bpf.c")
	if err != nil || len(files) == 0 {
		t.Fatal("no programs: ", err)
	}
	versions := []string{"v3", "v2"}
	if testing.Short() && os.Getenv(machineVariable) != "" {
		versions = versions[:1]
	}
	for _, file := range files {
		for _, version := range versions {
			t.Run(filepath.Base(file)+" "+version, func(t *testing.T) {
				b := testprog.CompileBPF(t, file, "-mcpu="+version)
				c, err := bpf.Load(bytes.NewReader(b))
				if err != nil {
					t.Fatal(err)
				}
				if err := c.AllowSignals(); err != nil {
					t.Fatal(err)
				}
				compareRow(t, m, c)
			})
		}
	}
}

// compareRow runs all programs of a collection, by turns.
func compareRow(t *testing.T, m *machine, c *bpf.Collection) {
	for _, spec := range c.Maps {
		if spec.Type != bpf.Array && spec.Type != bpf.RingBuf {
			spec.MaxEntries = min(spec.MaxEntries, 64) // full now and then, and quick to compare
		}
	}
	var proofs []*bpf.Proof
	for _, p := range c.Programs {
		proof, err := verify.Program(p)
		if err != nil {
			t.Fatal(err)
		}
		proofs = append(proofs, proof)
	}
	rng := rand.New(rand.NewPCG(31, 32))
	w := *mapWorld(t, c.Maps...)
	var runs []*run
	turns := 40
	if testing.Short() {
		turns = 15
	}
	for range turns {
		for _, proof := range proofs {
			w := w
			w.pidTgid, w.slot, w.memory, w.data = 1<<32|uint64(1+rng.IntN(4)), rng.IntN(2), memoryOfTarget, dataAt
			for i := range ContextWords {
				binary.LittleEndian.PutUint64(w.context[8*i:], uint64(rng.IntN(1<<rng.IntN(20))))
			}
			r, err := newRun(m, proof, &w)
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
		last := runs[len(runs)-1]
		w.segment = bytes.Clone(last.segment)
	}
	compare(t, m, runs)
}
