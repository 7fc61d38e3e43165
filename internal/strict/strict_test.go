package strict

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

type inner struct {
	Prompt string    `json:"prompt"`
	LogP   []float64 `json:"logp"`
	IDs    []int32   `json:"ids"`
	Reward *float64  `json:"reward"`
}

type embedded struct {
	Temperature float64 `json:"temperature"`
}

// own reads itself.
type own struct{ inner }

func (o *own) UnmarshalJSON(text []byte) error {
	if string(text) == `"no"` {
		return errOwn
	}
	return Known(text, &o.inner)
}

var errOwn = errors.New("100% no")

type outer struct {
	embedded
	Groups [][]inner       `json:"groups"`
	N      int             `json:"n"`
	Flag   bool            `json:"flag"`
	Texts  []string        `json:"texts"`
	Grades []*float64      `json:"grades"`
	Raw    json.RawMessage `json:"raw"`
	Raws   []json.RawMessage
	Own    []own          `json:"own"`
	Table  map[string]int `json:"table"`
	Any    any            `json:"any"`
}

func TestKnown(t *testing.T) {
	for text, want := range map[string]string{
		`{"groups":[[{"prompt":"x","logp":[-1,2e-3],"ids":[1],"reward":null}]],"n":null,"temperature":null}`: "",
		`{"grades":[null,1],"raw":null,"any":[null],"Raws":[null,1],"own":[{"ids":null}]}`:                   "",
		`{"groups":[[{}, {"logp":[-1, null]}]]}`:                                                             `groups[0][1].logp[1] is null, not a number`,
		`{"groups":[[{"ids":[1,null]}]]}`:                                                                    `groups[0][0].ids[1] is null, not a whole number`,
		`{"groups":[[null]]}`:                                                                                `groups[0][0] is null, not an object`,
		`{"texts":[null]}`:                                                                                   `texts[0] is null, not a text`,
		`{"own":[{"logp":[null]}]}`:                                                                          `own[0].logp[0] is null, not a number`,
		`{"own":[{"promt":1}]}`:                                                                              `unknown key "own[0].promt"; did you mean "prompt"?`,
		`{"own":["no"]}`:                                                                                     `own[0]: 100% no`,
		`{"own":[[1]]}`:                                                                                      `own[0] is a list, not an object`,
		`{"groups":["x"]}`:                                                                                   `groups[0] is "x", not a list`,
		`{"groups":[[{"ids":[2.5]}]]}`:                                                                       `groups[0][0].ids[0] is 2.5, not a whole number`,
		`{"groups":[[{"ids":[1, 3000000000]}]]}`:                                                             `groups[0][0].ids[1] is 3000000000, not a whole number of 32 bits`,
		`{"groups":[[{"logp":[1e999]}]]}`:                                                                    `groups[0][0].logp[0] is 1e999, not a number of 64 bits`,
		`{"groups":[[{"logp":{"a":1}}]]}`:                                                                    `groups[0][0].logp is an object, not a list`,
		`{"temperature":"x"}`:                                                                                `temperature is "x", not a number`,
		`{"flag":1}`:                                                                                         `flag is 1, not true or false`,
		`{"table":{"a b":"%d"}}`:                                                                             `table."a b" is "%d", not a whole number`,
		`{"groups":[[{"log_p":1}]]}`:                                                                         `unknown key "groups[0][0].log_p"; did you mean "logp"?`,
		`{"n":1,"N":1}`:                                                                                      `key "N" is stated twice`,
		`{"nn":1}`:                                                                                           `unknown key "nn"; did you mean "n"?`,
		`{"n":1,"n":2}`:                                                                                      `key "n" is stated twice`,
		`{"any":[{"a":1,"a":1}]}`:                                                                            `key "any[0].a" is stated twice`,
		`{"own":[{"ids":[1],"ids":[1]}]}`:                                                                    `key "own[0].ids" is stated twice`,
		`[1]`:                                                                                                `the text is a list, not an object`,
		`null`:                                                                                               ``,
		``:                                                                                                   `it is empty`,
		"{\n\"n\":":                                                                                          `it ends in the middle of the JSON text (line 2, byte 6)`,
		`{"n":1`:                                                                                             `it ends in the middle of the JSON text (byte 6)`,
		`{"n":1} {}`:                                                                                         `more text follows the JSON value, at byte 8`,
		`{"n":01}`:                                                                                           `not JSON at byte 6, near "{\"n\":01}"`,
		`{"n":nan}`:                                                                                          `not JSON at byte 6, near "{\"n\":nan}"`,
		`{n:1}`:                                                                                              `not JSON at byte 1, near "{n:1}"`,
		`{"texts":"` + strings.Repeat("é", 60) + `"}`: `texts is "` + strings.Repeat("é", 19) + `..., not a list`,
		`{"texts":["\ud800"]}`:                        ``,
	} {
		into := outer{N: 7, embedded: embedded{Temperature: 1}}
		got := ""
		if err := Known([]byte(text), &into); err != nil {
			got = err.Error()
		} else if strings.Contains(text, `"n":null`) && (into.N != 7 || into.Temperature != 1) {
			t.Errorf("%s changed what null leaves: %+v", text, into)
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	if err := Known([]byte(`{"own":["no"]}`), new(outer)); !errors.Is(err, errOwn) {
		t.Errorf("%v hides its cause", err)
	}
	if err := JSON([]byte(`{"promt":1}`), new(outer)); err != nil {
		t.Errorf("an unknown key: %v", err)
	}
}
