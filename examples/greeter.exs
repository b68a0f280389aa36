# A released Ockam node, in Elixir, whose worker asks the actor of greeter.py, and greets by itself.
#
#     python examples/greeter.py DIRECTORY                # prints 1#127.0.0.1:PORT;greeter
#     mix run examples/greeter.exs PORT Ada Bob           # where mix.exs depends on :ockam
#
# It asks for each name, and prints the answers. With a LISTEN in its environment it listens on that
# port, and goes on answering: `rillnode route ask '1#127.0.0.1:LISTEN;greeter' Ada`.

defmodule Asker do
  # What comes to this worker is sent on to the process that has made it.
  use Ockam.Worker

  @impl true
  def setup(options, state), do: {:ok, Map.put(state, :pid, Keyword.fetch!(options, :pid))}

  @impl true
  def handle_message(message, state) do
    send(state.pid, {:answer, Ockam.Message.payload(message)})
    {:ok, state}
  end
end

defmodule Greeter do
  use Ockam.Worker

  @impl true
  def handle_message(message, state) do
    Ockam.Router.route(%{
      onward_route: Ockam.Message.return_route(message),
      return_route: [state.address],
      payload: "hello from Elixir, " <> Ockam.Message.payload(message)
    })

    {:ok, state}
  end
end

Logger.configure(level: :error)
{:ok, _} = Application.ensure_all_started(:telemetry)
{:ok, _} = Application.ensure_all_started(:ranch)
if Process.whereis(Ockam) == nil, do: {:ok, _} = Ockam.start(:normal, [])

# Nodes of 2021 have another way to begin with TCP than those after them.
listen = System.get_env("LISTEN")
options = [port: String.to_integer(listen || "0")]
tcp = Ockam.Transport.TCP
Code.ensure_loaded!(tcp)

{:ok, _} =
  if function_exported?(tcp, :start, 1),
    do: apply(tcp, :start, [[listen: options]]),
    else: apply(tcp, :create_listener, [[route_outgoing: true] ++ options])

{:ok, _} = Greeter.create(address: "greeter")
[port | names] = System.argv()
node = Ockam.Transport.TCPAddress.new({127, 0, 0, 1}, String.to_integer(port))
{:ok, asker} = Asker.create(pid: self())

for name <- names do
  Ockam.Router.route(%{onward_route: [node, "greeter"], return_route: [asker], payload: name})

  receive do
    {:answer, text} -> IO.puts(text)
  after
    10_000 -> raise "nobody greets #{name}"
  end
end

if listen do
  IO.puts("listening")
  Process.sleep(:infinity)
end
