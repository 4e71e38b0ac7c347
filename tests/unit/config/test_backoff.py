from config.backoff import Backoff


def test_it_doubles_up_to_the_longest_wait() -> None:
    backoff = Backoff(first_s=0.2, longest_s=1.0)

    assert [backoff.delay_s(lived_s=0.1) for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_it_forgets_after_a_healthy_life() -> None:
    backoff = Backoff(first_s=0.2, healthy_after_s=30)
    for _ in range(4):
        backoff.delay_s(lived_s=1)

    assert backoff.delay_s(lived_s=30) == 0.2
    assert backoff.delay_s(lived_s=29.9) == 0.4
