package remote

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"3": 3 * time.Second, "120": 2 * time.Minute, " 0 ": 0, "999999999": 999999999 * time.Second,
		"Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got, stated := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want || !stated {
			t.Errorf("%q: %v, %v, want %v", text, got, stated, want)
		}
	}
	for _, text := range []string{"", "-1", "x", "soon", "1.5", "99999999999999"} {
		if got, stated := RetryAfter(http.Header{"Retry-After": {text}}, now); got != 0 || stated {
			t.Errorf("%q: %v, %v", text, got, stated)
		}
	}
}
