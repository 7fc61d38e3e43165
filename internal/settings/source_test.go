package settings

import (
	"fmt"
	"strings"
	"testing"
)

// TestFilePlaces: a setting of a run file has the line that states it, however it is
// written, and what is inside its value that of the table it is in.
func TestFilePlaces(t *testing.T) {
	const file = `stray = 1
"model".path = 'a#b' # [not.a.section]
[train] # rounds = 9
rounds = 3
text = """
[[reward.use]]
seed = 1 \"""
"""
'seed' = 2
list = [
  1, # [x]
  2,
]
[[reward.use]]
name = "a"
[ "reward" . use ]
[[reward.use]]
weight = { low = 1 }
[model.args]
x = 1
`
	valid := strings.Replace(file, "[ \"reward\" . use ]\n", "\n", 1)
	if _, err := File("f", []byte(file)); err == nil || !strings.HasPrefix(err.Error(), "f:16: ") {
		t.Errorf("error %v", err)
	}
	source, err := File("f", []byte(valid))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range source {
		got = append(got, s.Path()+" "+s.Place)
		if s.Path() == "reward.use" {
			got = append(got, s.inside("0", "name"), s.inside("1"), s.inside("1", "weight", "low"))
		}
	}
	want := "[.stray f:1 model. f:2 model.path f:2 train. f:3 train.rounds f:4 train.text f:5 train.seed f:9 train.list f:10 " +
		"reward. f:14 reward.use f:14 f:15 f:17 f:18 model.args f:19]"
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
}
