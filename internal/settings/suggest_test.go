package settings

import "testing"

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"clip", "clip", 0},
		{"lerning_rate", "learning_rate", 1},
		{"beta1", "beta2", 1},
		{"cilp", "clip", 1}, // a swap of neighbours
		{"kitten", "sitting", 3},
	} {
		if got := editDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := editDistance(tt.b, tt.a); got != tt.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

func TestClosest(t *testing.T) {
	keys := []string{"learning_rate", "beta1", "beta2", "eps", "warmup", "clip"}
	for _, tt := range []struct{ word, want string }{
		{"lerning_rate", "learning_rate"},
		{"learningrate", "learning_rate"},
		{"Clip", "clip"},
		{"clipp", "clip"},
		{"warm", "warmup"},
		{"zeta", ""},
		{"momentum", ""},
		{"lr", ""},
	} {
		if got, _ := closest(tt.word, keys); got != tt.want {
			t.Errorf("closest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}
