"""The server through the OpenAI Python client; see scripts/openai-client."""

import json
import signal
import subprocess
import sys
import time
import urllib.request

from openai import APIStatusError, OpenAI

QUESTION = "What is the name of the lighthouse keeper of Quellmere?"
PARAPHRASE = "Please tell me the name of the lighthouse keeper of Quellmere."
ANSWER = "The lighthouse keeper of Quellmere is Odalys Brandt."
FACT = "Odalys Brandt"


class Served:
    """A server on a free port, until it is stopped or killed."""

    def __init__(self, adapters, program, model, *flags):
        command = [program, "serve", "-m", model, "--port", "0", "--adapters", adapters, "--slots", "2", "-c", "1024", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            print("  " + line.rstrip())
            if line.startswith("listening on "):
                self.url = line.split()[-1]
                break
        else:
            sys.exit("the server did not start")
        self.client = OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0)
        self.model = self.client.models.list().data[0].id

    def ask(self, question, model=None):
        messages = [{"role": "user", "content": question}]
        answer = self.client.chat.completions.create(
            model=model or self.model, messages=messages, temperature=0, max_tokens=48
        )
        usage = answer.usage
        cached = usage.prompt_tokens_details.cached_tokens
        print(f"  {model or self.model}: {answer.choices[0].message.content!r} ({usage.prompt_tokens} tokens, {cached} cached)")
        return answer.choices[0].message.content

    def stream(self, question):
        messages = [{"role": "user", "content": question}]
        stream = self.client.chat.completions.create(
            model=self.model, messages=messages, temperature=0, max_tokens=48, stream=True,
            stream_options={"include_usage": True}, logprobs=True, top_logprobs=2,
        )
        text, usage, pieces = "", None, 0
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                pieces += 1
        print(f"  streamed in {pieces} chunks, {usage.completion_tokens} tokens")
        return text

    def learn(self, question, answer):
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        body = json.dumps({"messages": messages}).encode()
        request = urllib.request.Request(self.url + "/learn", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)


def check(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


def main(*arguments):
    print("Start")
    served = Served(*arguments)
    try:
        before = served.ask(QUESTION)
        check(FACT not in before, "the fact is not known before")
        check(served.stream(QUESTION) == before, "a stream says what the whole answer says")
        try:
            served.ask(QUESTION, served.model + ":nobody")
            check(False, "an unknown adapter is refused")
        except APIStatusError as error:
            check(error.status_code == 404 and error.body["code"] == "adapter_not_found", "by its name")
        print("Teach")
        begun = time.monotonic()
        taught = served.learn(QUESTION, ANSWER)
        print(f"  {json.dumps(taught)} ({time.monotonic() - begun:.1f} s)")
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
        print("Killed; start again")
        served = Served(*arguments)
        name = served.model + ":default"
        check(FACT in served.ask(QUESTION, name), "the fact is there after kill -9")
        check(FACT in served.ask(PARAPHRASE, name), "and in other words")
        check(served.ask(QUESTION) == before, "the model as it is answers as before")
    finally:
        served.process.send_signal(signal.SIGTERM)
        code = served.process.wait(timeout=30)
    check(code == 0, "the server stops when it is told to")
    print("Done")


main(*sys.argv[1:])
