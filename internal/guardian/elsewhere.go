//go:build !linux

package guardian

import "os"

// program is the program that a guardian executes: where there are no files in memory, this program
// itself, with all that it initialises.
func program() (path string, files []*os.File, err error) {
	path, err = os.Executable()
	return path, nil, err
}

// imageFiles is the number of files that program answers.
const imageFiles = 0

func named(string) {}

func unnumbered(err error) error { return err }
