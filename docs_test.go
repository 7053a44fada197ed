package kprobe_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// What the road and the pictures name is there: a file that was renamed leaves its name behind.
func TestFilesOfTheRoadExist(t *testing.T) {
	for _, doc := range []string{"doc.go", "docs/ARCHITECTURE.md", "docs/PROCESS.md", "README.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`[a-z0-9_]+(/[a-z0-9_]+)*\.(go|md)\b`).FindAllString(string(text), -1) {
			_, here := os.Stat(name)
			if _, err := os.Stat(filepath.Join("docs", name)); err != nil && here != nil && name != "main.go" {
				t.Errorf("%s names %s, which there is not", doc, name)
			}
		}
	}
}
