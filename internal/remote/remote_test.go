package remote_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"onering/internal/remote"
)

// TestPlain: an error of a connection names the host, in plain words, and what may help; it
// stays the error that it was.
func TestPlain(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	address := free.Addr().String()
	free.Close()
	_, err = http.Get("http://" + address + "/x")
	if got := remote.Plain(err).Error(); !strings.HasPrefix(got, `Get "http://`+address+`/x": no connection with `+address+" (") || strings.Contains(got, "dial") {
		t.Errorf("%s", got)
	}
	lookup := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "hub.example", Server: "10.0.0.1:53", IsNotFound: true}}
	got := remote.Plain(lookup)
	if got.Error() != "there is no host hub.example here: no network, or a wrong name" || !errors.As(got, new(*net.DNSError)) {
		t.Errorf("%v", got)
	}
	if other := errors.New("other"); remote.Plain(other) != other {
		t.Error("another error was changed")
	}
}
