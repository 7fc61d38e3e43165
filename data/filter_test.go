package data

import (
	"strings"
	"testing"
)

func TestFilter(t *testing.T) {
	row := func(text string) Object {
		o, err := parseObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}(`{"level": 4, "word": "Level 3", "digits": "12", "f": 2.5, "split": "train", "none": null, "ok": true,
		"tags": ["algebra", "hard", 7], "meta": {"src": {"name": "aime"}}, "two words": "x", "or": 1, "quote": "it's \"q\""}`)
	for text, want := range map[string]bool{
		`level == 4`:                           true,
		`level == 4.0`:                         true,
		`level != 4`:                           false,
		`level < 4`:                            false,
		`level <= 4`:                           true,
		`level > -4e0`:                         true,
		`level >= 4.5`:                         false,
		`level in 3..5`:                        true,
		`level in 4..4`:                        true,
		`level in 1.5..3.9`:                    false,
		`level not in 1..3`:                    true,
		`level in [1, 4]`:                      true,
		`level in ["4"]`:                       false,
		`word in 3..5`:                         true,
		`word == "Level 3"`:                    true,
		`digits > 9`:                           true,
		`digits > "9"`:                         false,
		`f == 2.5`:                             true,
		`split == "train"`:                     true,
		`split == 'train'`:                     true,
		`split != "test"`:                      true,
		`split in ["test", "train"]`:           true,
		`split contains "rai"`:                 true,
		`split not contains "rai"`:             false,
		`split == 4`:                           false,
		`split in "a".."u"`:                    true,
		`none == null`:                         true,
		`none != null`:                         false,
		`absent == null`:                       true,
		`absent < 3`:                           false,
		`absent >= 3`:                          false,
		`absent != 3`:                          true,
		`ok == true`:                           true,
		`ok == false`:                          false,
		`ok == 1`:                              false,
		`tags == "hard"`:                       true,
		`tags in [8, 7]`:                       true,
		`tags contains "geb"`:                  true,
		`tags == "easy"`:                       false,
		`tags != "hard"`:                       false,
		`meta.src.name == "aime"`:              true,
		`meta.src.date == null`:                true,
		"`two words` == \"x\"":                 true,
		"`or` == 1":                            true,
		`quote == "it's \"q\""`:                true,
		`level == 4 and split == "test"`:       false,
		`level == 4 or split == "test"`:        true,
		`not level == 4 or ok == true`:         true,
		`not (level == 4 or ok == true)`:       false,
		`level==1 or level==4 and f<2`:         false,
		`(level==4 or level==1) and f in 2..3`: true,
	} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Match(row); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestFilterErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                        "a column is wanted, not the end",
		`level`:                   "an operator [",
		`level = 3`:               `"=" is written "=="`,
		`level == `:               "a value is wanted, not the end",
		`level == train`:          `a value is wanted, not "train" (a text stands in quotes)`,
		`level in 5..3`:           "not a range from a smaller to a larger",
		`level in "a"..3`:         "not a range",
		`level in [1, 2`:          `"]" is wanted`,
		`level in []`:             "a value is wanted",
		`level == "train`:         "not closed",
		`(level == 3`:             `")" is wanted`,
		`level == 3 split == 4`:   `"split" is left over`,
		`level not 3`:             `"in" is wanted after "not"`,
		`level < null`:            "needs a number or a text",
		`level contains 3`:        "contains needs a text",
		`level == 1.2.3`:          "is not a number",
		`and == 3`:                "a column is wanted",
		`level == 3 and`:          "a column is wanted, not the end",
		`level % 2`:               `"%" is not understood`,
		strings.Repeat("(", 1000): "nested too deeply",
	} {
		_, err := ParseFilter(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	for _, s := range []string{`level in 3..5`, "not (`a b` == 'x' or a.b in [1, null]) and c >= -2e3", `x contains "\\"`} {
		f.Add(s)
	}
	row := Object{{"level", int64(4)}, {"a", Object{{"b", "x"}}}, {"c", []any{2.5, nil}}}
	f.Fuzz(func(t *testing.T, text string) {
		if filter, err := ParseFilter(text); err == nil {
			filter.Match(row)
			if len(filter.Columns()) == 0 {
				t.Errorf("%q has no column", text)
			}
		}
	})
}
