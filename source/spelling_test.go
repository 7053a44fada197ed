package source

import (
	"slices"
	"testing"
)

// TestSpellings holds that an integer's type is found in whichever way a compiler writes it.
func TestSpellings(t *testing.T) {
	for name, want := range map[string][]string{
		"most":                              {"most"},
		"most<long>":                        {"most<long>", "most<long int>"},
		"most<long int>":                    {"most<long int>", "most<long>"},
		"most<unsigned long, int>":          {"most<unsigned long, int>", "most<long unsigned int, int>"},
		"ns::at<long long unsigned int*>":   {"ns::at<long long unsigned int*>", "ns::at<unsigned long long*>"},
		"f<unsigned, signed char, longest>": {"f<unsigned, signed char, longest>", "f<unsigned int, signed char, longest>"},
		"f<std::vector<short> const&>":      {"f<std::vector<short> const&>", "f<std::vector<short int> const&>"},
		"f<unsigned char>":                  {"f<unsigned char>"},
		"f<long const*>":                    {"f<long const*>", "f<long int const*>"},
	} {
		if got := spellings(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
