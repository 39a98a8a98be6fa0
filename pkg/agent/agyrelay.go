package agent

import (
	"strings"
)

// Relay wraps the request in what every worker must know. Line endings become \n and bytes that are no UTF-8 become
// U+FFFD, because the text travels as JSON.
func (agy) Relay(t Turn, prompt []byte) string {
	var b strings.Builder
	b.WriteString(`You are one worker among several, running unattended: nobody reads along and nobody can answer a question.

Rules
- Do the request below and nothing beyond it. Where it leaves a choice open, take the simplest reading and say so.
- Work only in your current directory and in directories that the request names. Leave everything else as it is.
- Never commit, push, tag, open a pull request, or change a remote, unless the request says so in those words.
- Start no other agents, and leave no process running when you finish. Wait for what you start.
- Run and read before you claim. What you could not check, name as unchecked.

Your final response is the result. It has this shape, beginning with its first line:

`)
	unit := t.Unit
	if unit == "" {
		unit = "unit"
	}
	b.WriteString("# " + unit + ` result
Conclusion: <one line>
Files: <files created or changed, or "none (read-only)">
Open items: <what blocks or should follow, or "none">
Verification: <what you ran, checked or searched, or "none">

<the findings, analysis or summary of changes>
`)
	if t.ResultFile != "" {
		b.WriteString(`
Where the request asks you to write the result to a file yourself, that file is:
` + t.ResultFile + `
Write it once, complete. Otherwise answer in your final response only; it is saved for you.
`)
	}
	b.WriteString("\n--- UNIT REQUEST ---\n")
	request := strings.ToValidUTF8(string(prompt), "\uFFFD")
	request = strings.TrimPrefix(request, "\uFEFF")
	request = strings.ReplaceAll(request, "\r\n", "\n")
	b.WriteString(strings.TrimRight(request, " \t\r\n"))
	b.WriteString("\n--- END UNIT REQUEST ---\n")
	return b.String()
}
