package view

import (
	_ "embed"
	"encoding/json"
	"io"
	"strings"
	"time"
)

// About tells what a page is about.
type About struct {
	Process string // the processes, in some words
	Asked   string // the definitions, or places
	Began   time.Time
	Took    time.Duration // from the first event to the last
	Events  uint64
	Lost    uint64 // events that found no room
	Stopped bool   // threads were stopped inside the calls that are drawn, which took longer by that
}

// about is the form that the pages' script has of it.
type about struct {
	Process string `json:"process"`
	Asked   string `json:"asked"`
	Began   int64  `json:"began"` // ms since 1970
	Took    int64  `json:"took"`  // ns
	Events  uint64 `json:"events"`
	Lost    uint64 `json:"lost"`
	Stopped bool   `json:"stopped"`
}

func (a About) page() about {
	return about{a.Process, a.Asked, a.Began.UnixMilli(), int64(a.Took), a.Events, a.Lost, a.Stopped}
}

//go:embed about.css
var aboutStyle string

//go:embed about.js
var aboutScript string

// writePage puts data into a page, with the style and the script that all pages have. JSON of package json has no character that
// ends a script.
func writePage(to io.Writer, page string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	page = strings.NewReplacer("/*STYLE*/", aboutStyle, "/*SCRIPT*/", aboutScript, "/*DATA*/null", string(b)).Replace(page)
	_, err = io.WriteString(to, page)
	return err
}
