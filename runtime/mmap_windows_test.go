package runtime_test

import "testing"

func mapFile(t *testing.T, path string, n int) []byte {
	t.Helper()
	t.Skip("mapping a file is tested on Unix")
	return nil
}
